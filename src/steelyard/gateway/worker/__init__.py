"""The worker process: event loop, listeners, channel to the supervisor, fleet updates."""
