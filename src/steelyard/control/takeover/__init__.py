"""One gateway replaces another at the same addresses: sockets, replicas and learned state are handed over."""
