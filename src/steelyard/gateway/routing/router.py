"""From a request line to its route, and from the name in a request to the model."""

from __future__ import annotations

import re
from typing import Final

from ...config import ANY_MODEL, Config
from ...core.policies import find_policy
from ...protocols import DIALECTS, SERVER_DIALECTS, make_dialect
from ...protocols.base import ApiCall, Dialect, LocalReply, unescape_name
from ...protocols.repository import NO_CONTROL, model_control_of
from ..http.headers import MalformedMessageError, is_host
from ..http.paths import alternative_readings, normalize_path

MAX_CACHED_ROUTES = 4096  # when full, all are forgotten
MAX_CACHED_LINE_BYTES = 512

_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(rb"/[\x21\x22\x24-\x7e]*|\*")
_ABSOLUTE = re.compile(rb"https?://([^/?#@\x00-\x20\x7f]+)([\x21-\x7e]*)", re.IGNORECASE)
_REFUSED = {b"CONNECT", b"TRACE"}  # a tunnel to anywhere, and an echo of secrets

# KServe v1 and TensorFlow Serving.
_PREDICT = re.compile(r"/v1/models/(?P<model>[^/:]+)(?:/(?:versions|labels)/[^/:]+)?:[a-z]+")

PLAIN_DIALECT: Final = "http"

NOT_HEALTH_REQUEST: Final = 0
PROBE: Final = 1
SCRAPE: Final = 2

PROBE_PATHS: Final = frozenset(("/health", "/healthz", "/ready", "/readyz", "/live", "/livez", "/ping"))
SCRAPE_PATHS: Final = frozenset(("/metrics", "/version", "/favicon.ico"))
READ_METHODS: Final = (b"GET", b"HEAD")

SCALED_TO_ZERO_REPLY: Final = LocalReply(200, b"No replica runs now; a request starts one.\n", "text/plain")


class MethodNotAllowedError(MalformedMessageError):
    """A request line that is well-formed but not served."""


class HealthRequests:
    """Probes and scrapes: they neither start a model on demand nor keep it running. While it has no replica, a probe is
    told that all is well: otherwise no request would come that starts one."""

    def __init__(self, config: Config) -> None:
        started = [model for model in config.models.values() if model.runtime is not None]
        own = {path.partition("?")[0] for model in started for path in (model.health.path, model.health.live_path)}
        self._probes: frozenset[str] = PROBE_PATHS | own - {"", "/"} if started else frozenset()
        self._scrapes: frozenset[str] = SCRAPE_PATHS if started else frozenset()

    def kind(self, method: bytes, path: str) -> int:
        if method not in READ_METHODS:
            return NOT_HEALTH_REQUEST
        return PROBE if path in self._probes else SCRAPE if path in self._scrapes else NOT_HEALTH_REQUEST


class Route:
    """What a request line says; cached, because most clients repeat themselves."""

    def __init__(
        self, method: bytes, target: bytes, old: bool, host: bytes, dialect: Dialect, call: ApiCall, path: str
    ):
        self.method = method
        self.http10 = old
        self.host = host  # of a target in absolute form: it outranks the header
        self.request_line = method + b" " + target + b" HTTP/1.1"
        self.is_head = method == b"HEAD"
        self.dialect = dialect
        self.call = call
        self.path = path
        self.model = ""  # told by the path: the configuration's `paths`, or the dialect's
        self.other_dialect_model = ""  # a model that servers of another dialect would find in the path
        self.health_request = NOT_HEALTH_REQUEST
        self.control = NO_CONTROL  # would it load or unload models, or change the server otherwise?
        self.counts_tokens = call.kind in dialect.prompt_kinds  # do its answers tell of tokens?
        self.access_log_part = b""  # what the access log says of it, once it has


class Router:
    def __init__(self, config: Config) -> None:
        self.models = config.models
        self._health_requests = HealthRequests(config)
        self.routes: dict[bytes, Route] = {}
        spoken = {model.dialect for model in config.models.values()}
        own = sorted(name for name in spoken if name and name not in DIALECTS)  # package.module:Class
        by_path = [name for name in DIALECTS if name not in SERVER_DIALECTS]
        names = [*own, *(name for name in DIALECTS if name in spoken or ("" in spoken and name in by_path))]
        self.dialects = [make_dialect(name) for name in names if name != PLAIN_DIALECT]
        # A fleet that speaks any dialect answers for its models and readiness in each.
        rest = [name for name in by_path if name not in names and name != PLAIN_DIALECT] if self.dialects else []
        self._local_dialects = [make_dialect(name) for name in rest]
        self.plain = make_dialect(PLAIN_DIALECT)  # knows every path, so it is asked last
        self._by_path = sorted(
            ((_normalized(path).rstrip("/"), name) for name, model in config.models.items() for path in model.paths),
            key=lambda pair: -len(pair[0]),
        )
        self._only_model = next(iter(config.models)) if len(config.models) == 1 else ""
        self.counts_memory = bool(config.devices)
        # Models whose policy reads prompts. Where there are none, no prompt is made.
        self.prompt_models = frozenset(
            name for name, model in config.models.items() if find_policy(model.policy).needs_prompt
        )

    def find(self, line: bytes) -> Route:
        """Of a line not seen before. Raises MalformedMessageError."""
        route = self._read(line)
        if len(line) <= MAX_CACHED_LINE_BYTES:
            if len(self.routes) >= MAX_CACHED_ROUTES:
                self.routes.clear()
            self.routes[line] = route
        return route

    def _read(self, line: bytes) -> Route:
        parts = line.split(b" ")
        if len(parts) != 3 or not _METHOD.fullmatch(parts[0]):
            raise MalformedMessageError("The first line is not a request line of HTTP/1.1.")
        method, target, version = parts
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise MalformedMessageError("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
        if method in _REFUSED:
            raise MethodNotAllowedError(f"The method {method.decode()} is not served here.")
        host = b""
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute:
            host, target = absolute[1], absolute[2] or b"/"
            if not is_host(host):
                raise MalformedMessageError("The request target names no host.")
            if not target.startswith(b"/"):
                target = b"/" + target
        if not _TARGET.fullmatch(target) or (target == b"*" and method != b"OPTIONS"):
            raise MalformedMessageError("The request target is not a path.")
        written, mark, query = target.partition(b"?")
        spelled = normalize_path(written)
        path = spelled.decode("latin-1")
        dialect, call = self._call(method.decode(), path)
        route = Route(method, spelled + mark + query, version == b"HTTP/1.0", host, dialect, call, path)
        route.model = self._model_of_path(path) or call.model
        route.health_request = self._health_requests.kind(method, path)
        route.control = model_control_of(method, path)
        if dialect is self.plain and not route.model and not self._only_model:
            route.other_dialect_model = self._other_dialect_model(method.decode(), path)
        for reading in alternative_readings(path):
            self._check_reading(route, reading)
        return route

    def _check_reading(self, route: Route, path: str) -> None:
        """A server that decodes more must find the same in the path. Raises MalformedMessageError."""
        dialect, call = self._call(route.method.decode(), path)
        model = self._model_of_path(path) or call.model
        if dialect is not route.dialect or call != route.call or model != route.model:
            raise MalformedMessageError(
                "The path can be read in two ways: write it without escaped slashes, dots and percent signs."
            )
        route.control = max(route.control, model_control_of(route.method, path))

    def _call(self, method: str, path: str) -> tuple[Dialect, ApiCall]:
        for dialect in self.dialects:
            call = dialect.call(method, path)
            if call is not None:
                if self.prompt_models and call.kind in dialect.prompt_kinds:
                    call = call._replace(with_prompt=True)
                return dialect, call
        for dialect in self._local_dialects:
            call = dialect.call(method, path)
            if call is not None and call.local:
                return dialect, call
        call = self.plain.call(method, path)
        assert call is not None
        return self.plain, call

    def _other_dialect_model(self, method: str, path: str) -> str:
        """The header may route to a server that speaks more dialects than the configuration says."""
        found = _PREDICT.fullmatch(path)
        names = [unescape_name(found["model"])] if found else []
        for dialect in map(make_dialect, DIALECTS):
            call = dialect.call(method, path)
            if call is not None:
                names.append(call.model)
        return next((name for name in names if name in self.models), "")

    def _model_of_path(self, path: str) -> str:
        for prefix, name in self._by_path:
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                return name
        return ""

    def resolve(self, name: str) -> str | None:
        """The model for the name in a request, which may be empty; None: there is none."""
        models = self.models
        if name in models:
            return name
        if ANY_MODEL in models:
            return ANY_MODEL
        return self._only_model or None if not name else None


def _normalized(path: str) -> str:
    """A path that cannot be normalized is left as it is, and nothing is routed by it."""
    try:
        return normalize_path(path.encode("latin-1")).decode("latin-1")
    except ValueError:  # MalformedMessageError, or a character that no request line has
        return path
