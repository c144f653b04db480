"""TLS for clients: one context for all listeners, its certificate replaced in place when the files change."""

from __future__ import annotations

import ssl

from ..config import Tls


def client_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    renew(context, tls)
    return context


def renew(context: ssl.SSLContext, tls: Tls) -> None:
    """Read the files again: new handshakes use what is there now. Raises before the context is changed."""
    trial = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trial.load_cert_chain(tls.certificate, tls.key)
    if tls.client_ca:
        trial.load_verify_locations(tls.client_ca)
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    else:
        context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(tls.certificate, tls.key)
