"""A decision log replayed: another policy on recorded traffic."""
