"""What is kept over restarts of how requests stood to what was promised, and the reports made of it."""
