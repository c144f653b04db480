"""From a request line to what it asks for, and from what a request names to the model it is for."""

from __future__ import annotations

import re
from typing import Final

from ..config import ANY, Config
from ..protocols import BY_NAME, DIALECTS, make_dialect
from ..protocols.base import Call, Dialect, unescaped
from .fields import BadHead, is_host
from .looks import NO_LOOK, Looks
from .model_control import NO_CONTROL, control_of
from .paths import normalised, readings

MOST = 4096  # request lines remembered; when full, all are forgotten
LONGEST = 512  # bytes of a line worth remembering

_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"/[\x21\x22\x24-\x7e]*|\*")
_ABSOLUTE = re.compile(rb"https?://([^/?#@\x00-\x20\x7f]+)([\x21-\x7e]*)", re.IGNORECASE)
_REFUSED = {b"CONNECT", b"TRACE"}  # a tunnel to anywhere, and an echo of secrets

# KServe v1 and TensorFlow Serving.
_PREDICT = re.compile(r"/v1/models/(?P<model>[^/:]+)(?:/(?:versions|labels)/[^/:]+)?:[a-z]+")

PLAIN: Final = "http"


class Refused(BadHead):
    """A request line that is well-formed but not served."""


class Route:
    """What a request line says; kept, because most clients say the same again and again."""

    __slots__ = (
        "call",
        "control",
        "dialect",
        "head",
        "host",
        "line",
        "logged",
        "look",
        "mentioned",
        "method",
        "model",
        "old",
        "path",
        "target",
    )

    def __init__(self, method: bytes, target: bytes, old: bool, host: bytes, dialect: Dialect, call: Call, path: str):
        self.method = method
        self.target = target
        self.old = old
        self.host = host  # of a target in absolute form: it outranks the header
        self.line = method + b" " + target + b" HTTP/1.1"
        self.head = method == b"HEAD"
        self.dialect = dialect
        self.call = call
        self.path = path
        self.model = ""  # told by the path: the configuration's `paths`, or the dialect's
        self.mentioned = ""  # a model of the fleet that servers of another dialect would find in the path
        self.look = NO_LOOK
        self.control = NO_CONTROL  # would it load or unload models, or change the server otherwise?
        self.logged = b""  # what the access log says of it, once it has


class Router:
    def __init__(self, config: Config) -> None:
        self.models = config.models
        self._looks = Looks(config)
        self.routes: dict[bytes, Route] = {}
        spoken = {model.dialect for model in config.models.values()}
        own = sorted(name for name in spoken if name and name not in DIALECTS)  # package.module:Class
        by_path = [name for name in DIALECTS if name not in BY_NAME]
        names = [*own, *(name for name in DIALECTS if name in spoken or ("" in spoken and name in by_path))]
        self.dialects = [make_dialect(name) for name in names if name != PLAIN]
        # A fleet that speaks any of these is asked for all its models, and whether it is ready, in each of them.
        rest = [name for name in by_path if name not in names and name != PLAIN] if self.dialects else []
        self._asked = [make_dialect(name) for name in rest]
        self.plain = make_dialect(PLAIN)  # knows every path, so it is asked last
        self._by_path = sorted(
            ((_spelled(path).rstrip("/"), name) for name, model in config.models.items() for path in model.paths),
            key=lambda pair: -len(pair[0]),
        )
        self._only = next(iter(config.models)) if len(config.models) == 1 else ""
        self.counts_memory = bool(config.devices)

    def find(self, line: bytes) -> Route:
        """The route of a request line not seen before. Raises BadHead."""
        route = self._read(line)
        if len(line) <= LONGEST:
            if len(self.routes) >= MOST:
                self.routes.clear()
            self.routes[line] = route
        return route

    def _read(self, line: bytes) -> Route:
        parts = line.split(b" ")
        if len(parts) != 3 or not _METHOD.fullmatch(parts[0]):
            raise BadHead("The first line is not a request line of HTTP/1.1.")
        method, target, version = parts
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise BadHead("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        if method in _REFUSED:
            raise Refused(f"The method {method.decode()} is not served here.")
        host = b""
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute:
            host, target = absolute[1], absolute[2] or b"/"
            if not is_host(host):
                raise BadHead("The request target names no host.")
            if not target.startswith(b"/"):
                target = b"/" + target
        if not _TARGET.fullmatch(target) or (target == b"*" and method != b"OPTIONS"):
            raise BadHead("The request target is not a path.")
        written, mark, query = target.partition(b"?")
        spelled = normalised(written)
        path = spelled.decode("latin-1")
        dialect, call = self._call(method.decode(), path)
        route = Route(method, spelled + mark + query, version == b"HTTP/1.0", host, dialect, call, path)
        route.model = self._configured(path) or call.model
        route.look = self._looks.kind(method, path)
        route.control = control_of(method, path)
        if dialect is self.plain and not route.model and not self._only:
            route.mentioned = self._mentioned(method.decode(), path)
        for reading in readings(path):
            self._check_reading(route, reading)
        return route

    def _check_reading(self, route: Route, path: str) -> None:
        """A server that decodes more than we do must find the same in the path. Raises BadHead."""
        dialect, call = self._call(route.method.decode(), path)
        model = self._configured(path) or call.model
        if dialect is not route.dialect or call != route.call or model != route.model:
            raise BadHead("The path can be read in two ways: write it without escaped slashes, dots and percent signs.")
        route.control = max(route.control, control_of(route.method, path))

    def _call(self, method: str, path: str) -> tuple[Dialect, Call]:
        for dialect in self.dialects:
            call = dialect.call(method, path)
            if call is not None:
                return dialect, call
        for dialect in self._asked:
            call = dialect.call(method, path)
            if call is not None and call.local:
                return dialect, call
        call = self.plain.call(method, path)
        assert call is not None
        return self.plain, call

    def _mentioned(self, method: str, path: str) -> str:
        """The header may route to a server that speaks more dialects than the configuration says."""
        found = _PREDICT.fullmatch(path)
        names = [unescaped(found["model"])] if found else []
        for dialect in map(make_dialect, DIALECTS):
            call = dialect.call(method, path)
            if call is not None:
                names.append(call.model)
        return next((name for name in names if name in self.models), "")

    def _configured(self, path: str) -> str:
        for prefix, name in self._by_path:
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                return name
        return ""

    def resolve(self, name: str) -> str | None:
        """The model of the fleet for the name a request gives (or does not); None: there is none."""
        models = self.models
        if name in models:
            return name
        if ANY in models:
            return ANY
        return self._only or None if not name else None


def _spelled(path: str) -> str:
    """As requests are spelled; what cannot be is left as it is, and nothing is routed by it."""
    try:
        return normalised(path.encode("latin-1")).decode("latin-1")
    except ValueError:  # BadHead, or a character that no request line has
        return path
