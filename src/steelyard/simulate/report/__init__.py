"""The HTML report of a simulation: summary, charts, findings."""
