"""The demo: three replica processes of a small real model, the gateway of `steelyard serve`, traffic, a live table."""
