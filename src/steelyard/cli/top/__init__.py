"""`steelyard top`: the fleet, live in a terminal."""
