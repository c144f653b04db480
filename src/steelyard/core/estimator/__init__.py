"""Predicted seconds of a request: base(features) × slowness(replica) × curve(concurrency), learned online."""
