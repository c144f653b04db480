"""The structs of the configuration, one file per section."""
