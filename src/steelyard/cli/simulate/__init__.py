"""`steelyard simulate`: policies and scalers compared on simulated or recorded traffic."""
