"""The terminal of `steelyard top`: the alternate screen and single keys, restored at the end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from typing import Any

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
KEY_NAMES = {"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "k": "up", "j": "down"}
KEY_NAMES |= {"\x1b[5~": "page up", "\x1b[6~": "page down", "\x1b": "q", "\x04": "q"}
KEY_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.)")  # a key that is no letter; an unknown one does nothing


class Terminal:
    """Ctrl-C, SIGTERM and Ctrl-Z restore the terminal, too."""

    def __enter__(self) -> Terminal:
        self._in = sys.stdin.fileno()
        self._pressed = ""  # not yet handled
        self._before = termios.tcgetattr(self._in)
        self._handlers: dict[int, Any] = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGINT, signal.default_int_handler),  # even if a script that started us ignores it
                (signal.SIGTERM, _exit_on_signal),
                (signal.SIGHUP, _exit_on_signal),
                (signal.SIGTSTP, self._stop),
            )
        }
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def key(self, seconds: float) -> str:
        """Empty: none was pressed, or the terminal changed its size."""
        if not self._pressed:
            if not select.select([self._in], [], [], seconds)[0]:
                return ""
            self._pressed = os.read(self._in, 64).decode("utf-8", "replace")
        if not self._pressed:
            return "q"  # the terminal is gone
        sequence = KEY_SEQUENCE.match(self._pressed)
        first = sequence[0] if sequence else self._pressed[0]
        self._pressed = self._pressed[len(first) :]
        return KEY_NAMES.get(first, "" if sequence else first)

    def draw(self, text: str) -> None:
        sys.stdout.write("\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\x1b[J")
        sys.stdout.flush()

    def _take(self) -> None:
        tty.setcbreak(self._in)
        sys.stdout.write(ENTER_SCREEN)
        sys.stdout.flush()

    def _give_back(self) -> None:
        sys.stdout.write(LEAVE_SCREEN)
        sys.stdout.flush()
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _stop(self, *_: object) -> None:
        """Ctrl-Z: `os.kill` returns with `fg`."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        self._take()


def _exit_on_signal(number: int, _: object) -> None:
    sys.exit(128 + number)
