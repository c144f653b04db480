"""One request from its first byte to its last: client connection, exchange, upstream connection."""
