"""A replica that pretends to work, on the real agent: `python -m tests.replica.fake_replica --port 8001`."""
