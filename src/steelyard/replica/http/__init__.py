"""The agent as ASGI middleware, and the endpoints it adds."""
