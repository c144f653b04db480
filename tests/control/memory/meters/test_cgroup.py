"""The limit and the use of a cgroup, from a temporary folder that looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard.control.memory.meters.devices import CgroupMeter, MeterReading


def group(folder: Path, limit: int | str, used: int, inactive: int = 0) -> Path:
    """Version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\nactive_file 5\ninactive_file {inactive}\nslab 3\n")
    return folder


def old_group(folder: Path, limit: int, used: int, inactive: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"cache 9\ninactive_file 2\ntotal_inactive_file {inactive}\n")
    return folder


def test_its_limit_and_its_use_without_what_can_be_given_back(tmp_path: Path) -> None:
    assert CgroupMeter(str(group(tmp_path / "a", 1000, 400, 150))).read() == MeterReading(1000, 250)


def test_the_first_version(tmp_path: Path) -> None:
    assert CgroupMeter(str(old_group(tmp_path / "a", 1000, 400, 150))).read() == MeterReading(1000, 250)


def test_the_least_limit_upwards(tmp_path: Path) -> None:
    group(tmp_path / "top", 800, 300)
    inner = group(tmp_path / "top/middle/inner", 5000, 100)
    group(tmp_path / "top/middle", "max", 100)
    assert CgroupMeter(str(inner)).read() == MeterReading(800, 300), "of 800, 500 are free"


def test_siblings_use_what_is_around_it(tmp_path: Path) -> None:
    group(tmp_path / "top", 1000, 900)
    inner = group(tmp_path / "top/inner", 600, 50)
    assert CgroupMeter(str(inner)).read() == MeterReading(600, 500), "of its 600, only 100 can be had"


def test_no_limit(tmp_path: Path) -> None:
    for folder in (group(tmp_path / "a", "max", 70), old_group(tmp_path / "b", 0x7FFFFFFFFFFFF000, 70)):
        look = CgroupMeter(str(folder)).read()
        assert (look.capacity, look.used) == (None, 70)
        assert "no limit" in look.problem


@pytest.mark.parametrize("mounted", ["", "unified"])
def test_by_the_path_that_a_process_sees(tmp_path: Path, mounted: str) -> None:
    group(tmp_path / mounted / "pod/box", 1000, 10)
    assert CgroupMeter("/pod/box", tmp_path).read() == MeterReading(1000, 10)
    old_group(tmp_path / "memory/pod/old", 1000, 10)
    assert CgroupMeter("/pod/old", tmp_path).read() == MeterReading(1000, 10)


def test_there_is_none(tmp_path: Path) -> None:
    look = CgroupMeter("/no/such", tmp_path).read()
    assert look == MeterReading(problem="the cgroup /no/such cannot be measured: there is none that counts memory")


def test_nonsense(tmp_path: Path) -> None:
    folder = group(tmp_path / "a", 1000, 400)
    (folder / "memory.current").write_text("many\n")
    assert "cannot be measured" in CgroupMeter(str(folder)).read().problem
    (folder / "memory.current").unlink()
    assert "none that counts" in CgroupMeter(str(folder)).read().problem
