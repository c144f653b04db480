"""The supervisor: opens sockets, starts and replaces workers, manages replicas, reloads and drains."""
