from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.cli.command_line import COMMANDS
from steelyard.core import balancer


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_and_shows_examples(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f"steelyard {command}" in result.output
    assert "..." not in result.output.partition("Commands:")[2], "a description is cut off"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"steelyard {command}" in result.output


def test_a_demo_replica_whose_port_is_taken_says_so_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["demo-replica", "--port", str(port)])
    assert result.exit_code == 2
    assert result.output == (f"error: 127.0.0.1:{port} cannot be used: Address already in use; choose another --port\n")


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"steelyard \d+\.\d+\.\d+ \((compiled|pure Python)\)\n", result.output)
    source = Path(balancer.__file__).suffix == ".py"
    assert ("pure Python" if source else "compiled") in result.output


@pytest.mark.parametrize("arguments", [["nope"], ["--nope"], ["policies", "--nope"], ["policies", "a", "b"]])
def test_a_wrong_call_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "steelyard", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("steelyard ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serv"], "no command 'serv' (did you mean `serve`?)"),
        (["chekc", "a.yaml"], "no command 'chekc' (did you mean `check`?)"),
        (["zzz"], "no command 'zzz' (there are demo, "),
        (["serve", "--replcia", "http://a:1"], "No such option '--replcia'. Did you mean '--replica'?"),
        (["serve", "--max-wait", "1s"], "No such option '--max-wait': renamed to --queue-timeout"),
        (["demo", "--no-guide"], "No such option '--no-guide': renamed to --no-tour"),
        (
            ["serve", "--replica", "http://a:1", "--dialect", "vlm"],
            "--dialect: no dialect 'vlm' (did you mean `vllm`?)",
        ),
        (
            ["serve", "--replica", "http://a:1", "--policy", "lest_work"],
            "--policy: no policy 'lest_work' (did you mean",
        ),
        (["policies", "lest_work"], "no policy 'lest_work' (did you mean `least_work`?)"),
    ],
)
def test_what_is_mistyped_gets_a_suggestion(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {says}")
