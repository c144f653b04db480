"""DECIDES. Pure: no sockets, no asyncio, no wall clock, no global random. Time and rng are arguments."""
