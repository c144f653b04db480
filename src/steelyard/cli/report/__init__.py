"""`steelyard report`: SLO attainment over a period."""
