from __future__ import annotations

import os
from pathlib import Path

import pytest

from steelyard.cli.output import check_directory, write_atomically
from steelyard.core.errors import OptionError

FILES = {"a.txt": "one\n", "b.txt": "two µ\n"}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_directory_with_its_parents(tmp_path: Path) -> None:
    write_atomically(tmp_path / "x" / "y", FILES)
    assert names(tmp_path / "x" / "y") == ["a.txt", "b.txt"]
    assert (tmp_path / "x" / "y" / "b.txt").read_text(encoding="utf-8") == "two µ\n"
    assert names(tmp_path / "x") == ["y"]
    assert (tmp_path / "x" / "y").stat().st_mode == (tmp_path / "x").stat().st_mode


def test_an_existing_directory_keeps_what_else_is_there(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    (tmp_path / "a.txt").write_text("old")
    write_atomically(tmp_path, FILES)
    assert names(tmp_path) == ["a.txt", "b.txt", "other"]
    assert (tmp_path / "a.txt").read_text() == "one\n"


def test_a_relative_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically(Path("out"), FILES)
    write_atomically(Path("."), FILES)
    assert names(tmp_path) == ["a.txt", "b.txt", "out"]


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("exists", [False, True])
def test_after_an_error_nothing_is_there_that_was_not(
    problem: BaseException, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x" / "y"
    if exists:
        out.mkdir(parents=True)
    write_text = Path.write_text

    def full(self: Path, text: str, **options: str) -> int:
        if self.name == "b.txt":
            raise problem
        return write_text(self, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises((OptionError, KeyboardInterrupt)):
        write_atomically(out, FILES)
    assert names(tmp_path) == (["x"] if exists else [])
    if exists:
        assert names(tmp_path / "x") == ["y"]
        assert names(out) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="there is a file of that name"):
        check_directory(tmp_path / "file", FILES)
    with pytest.raises(OptionError, match="cannot write to"):
        check_directory(tmp_path / "file" / "below", FILES)
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OptionError, match=r"a\.txt is a directory there"):
        check_directory(tmp_path, FILES)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OptionError, match="cannot write to"):
        check_directory(tmp_path / "out", FILES)
