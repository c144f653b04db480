"""Hypothesis finds the same examples each time: a red run is red again, a green one stays green."""

import os
import tempfile

from hypothesis import settings

settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest --hypothesis-profile explore
settings.load_profile("steady")


# What gateways keep of their promises goes to a folder of its own: a test never finds what another, or a person, left.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="steelyard-tests-")
