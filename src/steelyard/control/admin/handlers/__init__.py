"""What the admin API does for each route."""
