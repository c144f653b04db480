"""Device memory: the ledger, what requests need of it, and admission by it."""
