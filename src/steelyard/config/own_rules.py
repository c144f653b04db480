"""A replica that is this gateway itself: requests to it would go round in a circle, or to the admin API."""

from __future__ import annotations

from collections.abc import Iterator

from ..addresses import Address, listen_address
from .shape import Config

IS_LISTEN_ADDRESS = "this is where Steelyard itself takes requests: name the model server's own address"
IS_ADMIN_ADDRESS = "this is Steelyard's own admin API: name the model server's own address"


def gateway_address_error(address: Address, config: Config, admin: Address | None = None) -> str:
    """Why a replica cannot be there, in words; empty: it can. `admin`: where the admin API really listens, if known."""
    if any(address.reaches(listener) for listener in _valid_addresses(config.listen_texts)):
        return IS_LISTEN_ADDRESS
    admins = [admin] if admin is not None else list(_valid_addresses((config.admin.listen or "",)))
    return IS_ADMIN_ADDRESS if any(address.reaches(listener) for listener in admins) else ""


def _valid_addresses(texts: tuple[str, ...]) -> Iterator[Address]:
    for text in texts:
        try:
            yield listen_address(text)
        except ValueError:
            continue  # told elsewhere, or there is none
