from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from steelyard.config import load_config, parse_config, read_tokens
from steelyard.documents import DocumentError

from ..harness.certificates import Authority

TOKEN = "0123456789abcdef"
REPLICAS = [{"url": "https://a"}, {"url": "https://b"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, server.pem, server.key, other.pem, other.key, locked.key"""
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("server", "DNS:localhost")
    made.issue("other", "DNS:localhost")
    locked = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", "server.key", "-out", "locked.key"]
    subprocess.run(locked, cwd=made.folder, check=True, capture_output=True)
    (made.folder / "empty.pem").write_text("")
    return made.folder


def write(folder: Path, **keys: object) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": {"replicas": REPLICAS}}, **keys}))
    return path


def errors(folder: Path, **keys: object) -> Iterator[str]:
    path = write(folder, **keys)
    with pytest.raises(DocumentError) as caught:
        load_config(path)
    return (line.partition(": ")[2].replace(f"{folder}/", "") for line in caught.value.lines)


def test_relative_paths_are_from_the_folder_of_the_configuration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = {"certificate": "server.pem", "key": str(folder / "server.key"), "client_ca": "ca.pem"}
    path = write(folder, tls=tls, access_log={"path": "access.log"})
    monkeypatch.chdir(folder.parent)
    for name in (path, path.relative_to(folder.parent)):
        found = load_config(name)
        assert found.tls is not None
        assert found.access_log is not None
        used = [found.tls.certificate, found.tls.key, found.tls.client_ca, found.access_log.path]
        assert used == [str(folder / file) for file in ("server.pem", "server.key", "ca.pem", "access.log")]


def test_what_is_not_named_stays_so(folder: Path) -> None:
    found = load_config(write(folder, access_log={"path": "-"}))
    assert found.tls is None
    assert found.models["m"].tls.ca == ""
    assert found.access_log is not None
    assert found.access_log.path == "-"


@pytest.mark.parametrize(
    ("tls", "messages"),
    [
        (
            {"certificate": "no.pem", "key": "no.key"},
            [
                "tls.certificate: no.pem: cannot be read: No such file or directory",
                "tls.key: no.key: cannot be read: No such file or directory",
            ],
        ),
        ({"certificate": "server.pem", "key": "."}, ["tls.key: .: cannot be read: Is a directory"]),
        (
            {"certificate": "server.pem", "key": "other.key"},
            ["tls.key: other.key: not the key of the certificate server.pem"],
        ),
        (
            {"certificate": "server.pem", "key": "locked.key"},
            ["tls.key: locked.key: needs a password: give a key without one"],
        ),
        (
            {"certificate": "empty.pem", "key": "server.key"},
            ["tls.certificate: empty.pem, server.key: not a certificate and its key in PEM"],
        ),
        (
            {"certificate": "server.pem", "key": "server.key", "client_ca": "empty.pem"},
            ["tls.client_ca: empty.pem: no certificates in PEM"],
        ),
        (
            {"certificate": "server.pem", "key": "a\0b"},
            ["tls.key: a\\x00b: cannot be read: embedded null byte"],
        ),
    ],
)
def test_files_for_clients(folder: Path, tls: dict[str, str], messages: list[str]) -> None:
    shown = [line.replace(str(folder), ".") for line in errors(folder, tls=tls)]
    assert shown == messages


def test_files_for_replicas(folder: Path) -> None:
    models = {
        "good": {"replicas": REPLICAS, "tls": {"ca": "ca.pem", "certificate": "server.pem", "key": "server.key"}},
        "bad": {"replicas": REPLICAS, "tls": {"ca": "no.pem", "certificate": "server.pem", "key": "other.key"}},
    }
    assert list(errors(folder, models=models)) == [
        "models.bad.tls.ca: no.pem: cannot be read: No such file or directory",
        "models.bad.tls.key: other.key: not the key of the certificate server.pem",
    ]


@pytest.mark.parametrize(
    ("path", "what"),
    [("no/such/file", "there is no directory no/such"), ("sub", "is a directory"), ("a\0b", "embedded")],
)
def test_where_no_access_log_can_be(folder: Path, path: str, what: str) -> None:
    (folder / "sub").mkdir(exist_ok=True)
    (line,) = errors(folder, access_log={"path": path})
    assert line.startswith("access_log.path: ")
    assert what in line


def test_files_of_discovery_and_of_tokens(folder: Path) -> None:
    (folder / "replicas.yaml").write_text("[]")
    (folder / "tokens").write_text(f"# for the deployer\n\n{TOKEN}\n  another-{TOKEN}  \n")
    found = load_config(
        write(
            folder,
            models={
                "m": {
                    "discovery": [
                        {"kind": "dns", "name": "m.svc", "port": 1},
                        {"kind": "file", "path": "replicas.yaml"},
                    ]
                }
            },
            admin={"token_file": "tokens"},
        )
    )
    assert [source.describe() for source in found.models["m"].discovery] == [
        "dns m.svc (A, AAAA)",
        f"file {folder}/replicas.yaml",
    ]
    assert found.admin.token_file == str(folder / "tokens")
    assert read_tokens(found.admin.token_file) == (TOKEN, f"another-{TOKEN}")


def test_files_of_discovery_that_cannot_be_read(folder: Path) -> None:
    models = {"m": {"discovery": [{"kind": "file", "path": "no.yaml"}, {"kind": "file", "path": "."}]}}
    shown = [line.replace(str(folder), ".") for line in errors(folder, models=models)]
    assert shown == [
        "models.m.discovery[0].path: no.yaml: cannot be read: No such file or directory",
        "models.m.discovery[1].path: .: cannot be read: Is a directory",
    ]


def test_pipes_are_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    models = {"m": {"discovery": [{"kind": "file", "path": "pipe"}]}}
    assert list(errors(folder, models=models, admin={"token_file": "pipe"})) == [
        "admin.token_file: pipe: cannot be read: it is a pipe, and must be read again when it changes",
        "models.m.discovery[0].path: pipe: cannot be read: it is a pipe",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "bad-tokens: cannot be read: No such file or directory"),
        ("", "bad-tokens: there is no token in it: write one a line; `openssl rand -hex 32` makes a good one"),
        ("# none\n\n", "bad-tokens: there is no token in it"),
        (f"{TOKEN}\ns3cret with spaces\n", "bad-tokens: line 2: a token is visible ASCII without spaces, at most 512"),
        ("s3crét", "bad-tokens: line 1: a token is visible ASCII without spaces, at most 512"),
        ("x" * 513, "bad-tokens: line 1: a token is visible ASCII without spaces, at most 512"),
        ("s3cret", "bad-tokens: line 1: a token has at least 16 characters; `openssl rand -hex 32` makes a good one"),
        ("x\n" * 40_000, "bad-tokens: longer than 64 KiB, so it is hardly a list of tokens"),
    ],
)
def test_files_of_tokens_that_cannot_be_used(folder: Path, text: str | None, what: str) -> None:
    (folder / "bad-tokens").unlink(missing_ok=True)
    if text is not None:
        (folder / "bad-tokens").write_text(text, encoding="utf-8")
    (line,) = errors(folder, admin={"token_file": "bad-tokens"})
    assert line.startswith(f"admin.token_file: {what}")
    assert "s3cr" not in line


def test_a_text_alone_is_checked_without_its_files() -> None:
    assert parse_config("tls: {certificate: no.pem, key: no.key}\nmodels: {m: {}}").tls is not None


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"nope\.yaml: cannot be read: No such file or directory"):
        load_config(tmp_path / "nope.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"models: {\xe9: {}}")
    with pytest.raises(DocumentError, match="not a UTF-8 text file"):
        load_config(tmp_path / "latin.yaml")
