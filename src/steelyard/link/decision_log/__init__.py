"""The lines of the decision log: their form, search in files, explanation in words."""
