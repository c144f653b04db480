"""How many replicas a model should have, and which to remove."""
