"""Rolling restarts of real model servers, each started as its own quick start says."""
