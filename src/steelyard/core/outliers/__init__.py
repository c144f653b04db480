"""Outlier detection: ejection, suspicion and probation of replicas."""
