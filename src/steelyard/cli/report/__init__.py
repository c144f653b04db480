"""`steelyard report`: what was promised in a period, and whether it was kept."""
