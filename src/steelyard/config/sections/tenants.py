"""Tenants, and what they may ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import msgspec

from ...documents import Key, Problem
from ..formats import network_hint, parse_network
from .base import Section, described

ANY_OTHER_TENANT = "*"
_MAX_TENANT_NAME_CHARS = 256

Priority = Annotated[int, msgspec.Meta(ge=-999, le=999)]


class TenantConfig(Section, frozen=True):
    """One who uses the gateway. `*` stands for all that have no name here."""

    __renamed__: ClassVar[dict[str, str]] = {"priority": "max_priority"}

    networks: Annotated[
        tuple[str, ...], described("clients with these addresses are this tenant", examples=[["10.2.0.0/16"]])
    ] = ()
    max_priority: Annotated[
        Priority, described("highest `steelyard-priority` of its requests; a higher one counts as this")
    ] = 0


def tenant_problems(tenants: Mapping[str, TenantConfig]) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name, tenant in tenants.items():
        key: Key = ("tenants", name)
        if not name or len(name) > _MAX_TENANT_NAME_CHARS or not name.isprintable():
            yield Problem(
                key, f"the name of a tenant has 1 to {_MAX_TENANT_NAME_CHARS} characters, all of them printable"
            )
        if name == ANY_OTHER_TENANT and tenant.networks:
            yield Problem(
                (*key, "networks"), f"{ANY_OTHER_TENANT} stands for all other tenants: give their networks a name"
            )
        for place, text in enumerate(tenant.networks):
            if parse_network(text) is None:
                meant = network_hint(text) or ": write for example 10.0.0.0/8, 192.168.1.7 or fd00::/8"
                yield Problem((*key, "networks", place), f"{text!r} is not a network{meant}")
            elif (other := taken.setdefault(str(parse_network(text)), name)) != name:
                yield Problem((*key, "networks", place), f"{text!r} is a network of the tenant {other!r} too")
