"""Where the command line begins: Ctrl-C is quiet from the first moment, also while the rest is still being imported."""

import sys

INTERRUPTED = 130  # 128 + SIGINT, as shells count


def main() -> None:
    try:
        from .cli import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
