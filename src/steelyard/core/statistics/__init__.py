"""Histograms, decayed means and sliding windows."""
