"""The devices that replicas share: how large they are, what is in use, and what models and requests need of them."""

from .accounting import MemoryAccounting

__all__ = ["MemoryAccounting"]
