"""Who may use the admin API, and which replicas may be added through it."""
