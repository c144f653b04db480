"""SLO counts kept over restarts, and the reports made of them."""
