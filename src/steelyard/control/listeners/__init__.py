"""Listening sockets, opened by the supervisor and inherited by workers."""
