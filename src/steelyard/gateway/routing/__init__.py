"""Which model a request is for, and what its client may ask."""
