"""Certificates made with the `openssl` command: a CA, and what it signs."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca, self._key = folder / "ca.pem", folder / "ca.key"
        _openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test authority",
            "-keyout", self._key, "-out", self.ca,
        )  # fmt: skip

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """A certificate for these hosts (`DNS:…` or `IP:…`), and its key."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(hosts)}\n" if hosts else "")
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", "2",
            "-extfile", extensions, "-out", certificate,
        )  # fmt: skip
        return certificate, key

    def client_context(self, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        """For a client that trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
