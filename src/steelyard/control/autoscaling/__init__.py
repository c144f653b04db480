"""How many replicas each model should have: signals of the workers in, numbers and reasons out."""
