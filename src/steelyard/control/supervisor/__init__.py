"""The supervisor: holds the sockets and the configuration, carries no request itself."""
