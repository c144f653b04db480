"""Access to the admin API, and which replicas may be added through it."""
