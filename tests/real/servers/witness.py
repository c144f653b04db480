"""What a replica saw, in its own words: a line of JSON for each thing, with the machine's monotonic clock.

The file is named by the environment variable WITNESS; its lines are as those of `tests.replica.fake_replica`.
"""

import json
import os
import time

LOADING, READY = "loading", "ready"


class Log:
    """Any process of a server may write to it, and know from it whether the model is loaded."""

    def __init__(self):
        self.path = os.environ["WITNESS"]

    def say(self, event, **what):
        line = json.dumps({"at": time.monotonic(), "event": event, **what}) + "\n"
        with open(self.path, "a") as file:  # appended at once: lines of several processes do not mix
            file.write(line)

    def loaded(self, times=1):
        """Have so many workers said that they are loaded?"""
        with open(self.path) as file:
            return sum('"event": "loaded"' in line for line in file) >= times


class Witness:
    """ASGI middleware: notes every request, with the state in which it came, and what probes are answered."""

    def __init__(self, app, workers=1):
        self.app = app
        self.workers = workers
        self.log = Log()
        self.ready = False

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["path"].endswith(("/health", "/healthz", "/ready", "/live")):
            await self._probe(scope, receive, send)
        else:
            self.ready = self.ready or self.log.loaded(self.workers)
            named = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
            self.log.say("came", id=named, path=scope["path"], state=READY if self.ready else LOADING)
            await self.app(scope, receive, send)

    async def _probe(self, scope, receive, send):
        async def send_wrapper(message):
            if message["type"] == "http.response.start":
                self.log.say("probed", path=scope["path"], status=message["status"])
            await send(message)

        await self.app(scope, receive, send_wrapper)
