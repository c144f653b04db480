from __future__ import annotations

import os
from pathlib import Path

import pytest

from steelyard.control.file_watcher import FileWatcher


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    return path


def test_nothing_changed(file: Path) -> None:
    watch = FileWatcher([file])
    assert [watch.poll() for _ in range(3)] == [[], [], []]


def test_a_change_is_told_once_and_only_when_the_file_holds_still(file: Path) -> None:
    watch = FileWatcher([file])
    file.write_text("a: 12")
    assert watch.poll() == []
    file.write_text("a: 123")  # still being written
    assert watch.poll() == []
    assert watch.poll() == [str(file)]
    assert watch.poll() == []


def test_the_same_size_at_another_time(file: Path) -> None:
    watch = FileWatcher([file])
    os.utime(file, (1, 1))
    watch.poll()
    assert watch.poll() == [str(file)]


def test_replaced_by_another_of_the_same_size_and_time(file: Path) -> None:
    watch = FileWatcher([file])
    other = file.with_name("other")
    other.write_text("b: 2")
    found = file.stat()
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.rename(file)
    watch.poll()
    assert watch.poll() == [str(file)]


def test_a_symbolic_link_that_leads_elsewhere_as_in_kubernetes(tmp_path: Path) -> None:
    for version in ("..1", "..2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text("a: 1")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    watch = FileWatcher([tmp_path / "config.yaml"])
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    watch.poll()
    assert watch.poll() == [str(tmp_path / "config.yaml")]


def test_a_file_that_is_gone_for_a_while(file: Path) -> None:
    watch = FileWatcher([file])
    file.rename(file.with_name("aside"))
    assert [watch.poll() for _ in range(3)] == [[], [], []]
    file.with_name("aside").rename(file)
    assert [watch.poll() for _ in range(3)] == [[], [], []]  # the same is back
    file.unlink()
    watch.poll()
    file.write_text("new: 1")
    watch.poll()
    assert watch.poll() == [str(file)]


def test_other_files_from_now_on(file: Path, tmp_path: Path) -> None:
    watch = FileWatcher([file])
    key = tmp_path / "key.pem"
    watch.watch([file, key])  # not there yet
    file.write_text("a: 12")
    key.write_text("key")
    watch.poll()
    watch.watch([file, key])  # forgets no change
    assert watch.poll() == [str(file), str(key)]
    watch.watch([])
    file.write_text("a: 123")
    assert [watch.poll() for _ in range(3)] == [[], [], []]


def test_what_was_read_anyway(file: Path) -> None:
    watch = FileWatcher([file])
    file.write_text("a: 12")
    watch.mark_current()
    assert [watch.poll() for _ in range(3)] == [[], [], []]
