"""Steelyard inside other libraries. Each module needs the library it is named after."""
