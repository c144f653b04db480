"""Outside Linux the library, the simulator and the commands without a gateway work; the others say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..harness.other_platforms import run_as

EVERYWHERE = pytest.mark.parametrize("platform", ["darwin", "win32"])


def command(platform: str, *arguments: object) -> tuple[int, str]:
    words = ["steelyard", *map(str, arguments)]
    done = run_as(platform, f"sys.argv = {words!r}\nfrom steelyard.entry import main\nmain()\n")
    return done.returncode, done.stdout + done.stderr


@EVERYWHERE
@pytest.mark.parametrize("name", ["serve", "demo", "demo-replica"])
def test_a_command_that_needs_linux_says_so_in_one_sentence(platform: str, name: str) -> None:
    code, said = command(platform, name, "--replica", "http://127.0.0.1:1", "--help")
    assert code == 2
    assert said.startswith(f"error: `steelyard {name}` does not work on {platform}: run it on Linux,")
    assert len(said.splitlines()) == 1


@EVERYWHERE
def test_the_help_lists_all_commands(platform: str) -> None:
    code, said = command(platform, "--help")
    assert code == 0
    assert "Not on this system." in said
    assert "simulate" in said


@EVERYWHERE
@pytest.mark.parametrize(
    "arguments",
    [
        ("policies",),
        ("simulate", "W1", "--requests", 50, "--seeds", 1, "--load", 0.5, "--policy", "random"),
        ("simulate", "W6", "--requests", 50, "--seeds", 1, "--load", 0.5, "--policy", "least_connections"),
        ("explain", "--help"),
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_a_command_without_a_gateway_works_everywhere(platform: str, arguments: tuple[object, ...]) -> None:
    code, said = command(platform, *arguments)
    assert code == 0, said


@EVERYWHERE
def test_a_configuration_is_checked_everywhere(platform: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("models:\n  m: {replicas: [{url: 'http://127.0.0.1:9'}]}\n")
    code, said = command(platform, "check", file)
    assert code == 0, said


@EVERYWHERE
def test_the_library_works_everywhere(platform: str) -> None:
    program = """
import steelyard
lb = steelyard.LoadBalancer(["a", "b"], policy="least_work")
for _ in range(100):
    lb.complete_request(lb.route_request(features=[1.0]), latency=0.1)
print(lb.load)
"""
    done = run_as(platform, program)
    assert done.stdout == "{'a': 0, 'b': 0}\n", done.stderr
