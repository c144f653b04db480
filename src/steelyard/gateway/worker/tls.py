"""TLS for clients. A new context when its files change: one in use cannot forget an authority."""

from __future__ import annotations

import ssl
from hashlib import sha256
from pathlib import Path
from typing import Final

from ...config import TlsConfig

MALLOC_BLOCK_BYTES: Final = 1 << 20  # uvloop takes 256 KiB for each record that it reads


def raise_malloc_threshold() -> None:
    """glibc then keeps freed blocks of this size: asking the kernel for each makes a small record ten times as dear."""
    bytes(MALLOC_BLOCK_BYTES)


def listener_context(tls: TlsConfig) -> ssl.SSLContext:
    raise_malloc_threshold()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(tls.certificate, tls.key)
    if tls.client_ca:
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_fingerprint(tls: TlsConfig | None) -> tuple[object, ...]:
    if tls is None:
        return ()
    files = [name for name in (tls.certificate, tls.key, tls.client_ca) if name]
    return (tls, *(sha256(Path(name).read_bytes()).digest() for name in files))  # hashed: no copy of the key
