"""SLOs: accounting, burn-rate alerts, error budgets."""
