"""`python -m steelyard.demo.die_with_parent PID MODULE …`: runs a module as a program that ends with process PID.

A killed demo cannot clean up, so the kernel does it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tied_command(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "steelyard.demo.die_with_parent", str(os.getpid()), module)


def main() -> None:
    _, parent, module, *arguments = sys.argv
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it ended before we asked
        sys.exit(0)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
