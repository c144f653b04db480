"""Totals, events, alarms and views of the fleet."""
