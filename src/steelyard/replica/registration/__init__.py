"""Leases: this replica announced to gateways, renewed, and given up."""
