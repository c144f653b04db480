"""The terminal while `steelyard top` has it: the other screen, keys as they come, and all as before at the end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from types import FrameType, TracebackType
from typing import Any

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
KEY_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
KEY_SEQUENCE = re.compile(
    r"\x1b(\[[0-?]*[ -/]*[@-~]|O.)"
)  # a key that is no letter; one that we do not know does nothing
KEY_NAMES |= {"k": "up", "j": "down", "\x1b": "q", "\x04": "q"}


class Terminal:
    """`with Terminal():` Ctrl-C, SIGTERM and Ctrl-Z leave the terminal as it was, too."""

    def __enter__(self) -> Terminal:
        self._in = sys.stdin.fileno()
        self._pressed = ""  # and not yet looked at
        self._before = termios.tcgetattr(self._in)
        self._handlers: dict[int, Any] = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGINT, signal.default_int_handler),  # also where a script that began us ignores it
                (signal.SIGTERM, _exit_on_signal),
                (signal.SIGHUP, _exit_on_signal),
                (signal.SIGTSTP, self._stop),
            )
        }
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def key(self, seconds: float) -> str:
        """The next that is pressed; empty: none so far, or the size of the terminal changed."""
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

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: stopped here, and on again with `fg`."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        self._take()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
