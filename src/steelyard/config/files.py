"""The files a configuration names: where they are, and whether they can be used."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ..documents import Key, Problem
from .secret_files import read_headers, read_tokens
from .sections.base import ReplicaTlsConfig, Section
from .sections.root import Config, ModelConfig

STDOUT = "-"
SectionT = TypeVar("SectionT", bound=Section)


def with_absolute_paths(config: Config, folder: Path) -> Config:
    """With relative paths taken from the folder of the configuration, not from the working directory."""
    log = config.access_log
    if log is not None and log.path != STDOUT:
        log = _resolved(folder, log, "path")
    return msgspec.structs.replace(
        config,
        models={name: _model_with_absolute_paths(model, folder) for name, model in config.models.items()},
        tls=config.tls and _resolved(folder, config.tls, "certificate", "key", "client_ca"),
        access_log=log,
        admin=_resolved(folder, config.admin, "token_file"),
        history=_resolved(folder, config.history, "path"),
        tracing=config.tracing and _resolved(folder, config.tracing, "headers_file"),
        decision_log=config.decision_log and _resolved(folder, config.decision_log, "path"),
    )


def _model_with_absolute_paths(model: ModelConfig, folder: Path) -> ModelConfig:
    return msgspec.structs.replace(
        model,
        tls=_resolved(folder, model.tls, "ca", "certificate", "key"),
        discovery=tuple(source.with_absolute_paths(folder) for source in model.discovery),
        runtime=model.runtime and model.runtime.with_absolute_paths(folder),
    )


def _resolved(folder: Path, part: SectionT, *names: str) -> SectionT:
    given = {name: str(folder / path) for name in names if (path := getattr(part, name))}
    return msgspec.structs.replace(part, **given)


def file_problems(config: Config) -> Iterator[Problem]:
    if config.tls is not None:
        yield from _certificate_and_key(("tls",), config.tls.certificate, config.tls.key)
        yield from _authorities(("tls", "client_ca"), config.tls.client_ca)
    for name, model in config.models.items():
        key: Key = ("models", name, "tls")
        if model.tls.certificate:
            yield from _certificate_and_key(key, model.tls.certificate, model.tls.key)
        yield from _authorities((*key, "ca"), model.tls.ca)
        for place, source in enumerate(model.discovery):
            yield from source.file_problems(("models", name, "discovery", place))
        if model.runtime is not None:
            yield from model.runtime.file_problems(("models", name, "runtime"))
    if config.admin.token_file:
        yield from token_problems(("admin", "token_file"), config.admin.token_file)
    if config.access_log is not None and config.access_log.path != STDOUT:
        yield from log_problems(("access_log", "path"), Path(config.access_log.path))
    if config.decision_log is not None:
        yield from log_problems(("decision_log", "path"), Path(config.decision_log.path))
    if config.tracing is not None and config.tracing.headers_file:
        yield from _headers(("tracing", "headers_file"), config.tracing.headers_file)


def _certificate_and_key(key: Key, certificate: str, private: str) -> Iterator[Problem]:
    files = (("certificate", certificate), ("key", private))
    if unreadable := [problem for name, path in files for problem in unreadable_problems((*key, name), path)]:
        yield from unreadable
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private, password=_no_password)
    except _EncryptedKeyError:
        yield Problem((*key, "key"), f"{private}: needs a password: give a key without one")
    except (ssl.SSLError, ValueError) as problem:
        if getattr(problem, "reason", None) == "KEY_VALUES_MISMATCH":
            yield Problem((*key, "key"), f"{private}: not the key of the certificate {certificate}")
        else:
            yield Problem((*key, "certificate"), f"{certificate}, {private}: not a certificate and its key in PEM")


def _authorities(key: Key, path: str) -> Iterator[Problem]:
    if not path:
        return
    if unreadable := list(unreadable_problems(key, path)):
        yield from unreadable
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, ValueError):
        yield Problem(key, f"{path}: no certificates in PEM")


def unreadable_problems(key: Key, path: str) -> Iterator[Problem]:
    try:
        if Path(path).is_fifo():  # reading would block
            raise ValueError("it is a pipe")
        with open(path, "rb") as file:
            file.read(1)
    except (OSError, ValueError) as problem:
        yield Problem(key, f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}")


def token_problems(key: Key, path: str) -> Iterator[Problem]:
    try:
        read_tokens(path)
    except ValueError as problem:
        yield Problem(key, str(problem))


def _headers(key: Key, path: str) -> Iterator[Problem]:
    try:
        read_headers(path)
    except (OSError, ValueError) as problem:
        yield Problem(key, f"{path}: {getattr(problem, 'strerror', None) or problem}")


def log_problems(key: Key, path: Path) -> Iterator[Problem]:
    try:
        writable = os.access(path, os.W_OK) or (not path.exists() and os.access(path.parent, os.W_OK))
    except ValueError as problem:  # a NUL in its name
        yield Problem(key, f"{path}: {problem}")
        return
    if path.is_dir():
        yield Problem(key, f"{path}: is a directory")
    elif not path.parent.is_dir():
        yield Problem(key, f"{path}: there is no directory {path.parent}")
    elif not writable:
        yield Problem(key, f"{path}: cannot be written to")


def folder_problems(key: Key, path: str) -> Iterator[Problem]:
    if path and not os.path.isdir(path):
        yield Problem(key, f"{path}: {'is not a folder' if os.path.lexists(path) else 'there is no such folder'}")


class _EncryptedKeyError(Exception):
    pass


def _no_password() -> str:
    """Without this, OpenSSL asks on the terminal."""
    raise _EncryptedKeyError


def replica_tls_context(tls: ReplicaTlsConfig) -> ssl.SSLContext:
    """For requests and probes. OSError (OpenSSL's errors too): the files cannot be used."""
    context = ssl.create_default_context(cafile=tls.ca or None)
    if tls.certificate:
        context.load_cert_chain(tls.certificate, tls.key)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
