"""Hypothesis finds the same examples each time: a red run is red again, a green one stays green."""

from hypothesis import settings

settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest --hypothesis-profile explore
settings.load_profile("steady")
