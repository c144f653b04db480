"""A minimal HTTP/1.1 client for probes and model repositories: a fresh connection per request."""
