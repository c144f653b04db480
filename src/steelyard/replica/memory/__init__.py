"""Memory of this process and its accelerator: what it holds and what requests need."""
