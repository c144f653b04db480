"""Where the command line begins: Ctrl-C is quiet even during imports."""

import sys

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
PYTHON_TOO_OLD = (
    "error: the command `steelyard` needs Python 3.11 or newer; on this one only `import steelyard.replica` works"
)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # pip installs the replica agent from 3.9 on
        sys.exit(PYTHON_TOO_OLD)
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
