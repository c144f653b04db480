"""TLS to replicas, made from the files a configuration names: the same for requests and for probes."""

from __future__ import annotations

import ssl

from .parts import ReplicaTlsConfig


def replica_tls_context(tls: ReplicaTlsConfig) -> ssl.SSLContext:
    """Reads the files; OSError (OpenSSL's errors are such) if they cannot be used."""
    context = ssl.create_default_context(cafile=tls.ca or None)
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
