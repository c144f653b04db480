"""Which models to load on which servers, and which to unload for them."""
