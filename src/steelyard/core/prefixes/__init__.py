"""Prompts of text-generating engines: whose cache has which prefix, and the tokens each replica has still to read."""
