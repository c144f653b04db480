"""Retries and hedges: further attempts of one request, within budgets."""
