"""Watches: the supervisor, which binds the sockets, starts the workers, replaces them, reloads and drains."""
