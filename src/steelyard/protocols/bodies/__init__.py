"""Request bodies: the model they name and the size of the work they ask for."""
