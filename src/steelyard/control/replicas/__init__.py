"""As many replicas of ours as there should be: started, watched, replaced, drained and stopped, through a runtime."""
