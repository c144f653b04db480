"""One file per dialect; the table is in `protocols`."""
