"""HTTP/1.1 messages as bytes: heads, chunked bodies, paths. No state of a request."""
