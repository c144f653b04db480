"""The worker processes: started, watched, replaced."""
