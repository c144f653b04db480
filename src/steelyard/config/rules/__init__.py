"""What types cannot express: impossible values, and values that do not fit each other."""
