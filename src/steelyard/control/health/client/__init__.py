"""A minimal HTTP/1.1 client for probes: a fresh connection per request."""
