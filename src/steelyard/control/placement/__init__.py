"""Models are loaded where they are wanted, and unloaded where others are wanted more."""
