"""From a request line to a dialect, a path and a model."""

import pytest

from steelyard.config import parse_config
from steelyard.gateway.http.headers import MalformedMessageError
from steelyard.gateway.routing import router as routing
from steelyard.gateway.routing.router import MethodNotAllowedError, Router

FLEET = """
models:
  talk: {dialect: openai, replicas: []}
  see: {dialect: oip, paths: [/see, /see/deep], replicas: []}
  deep: {paths: [/see/deeper/], replicas: []}
"""


@pytest.fixture
def router() -> Router:
    return Router(parse_config(FLEET))


@pytest.mark.parametrize(
    ("line", "method", "target", "path"),
    [
        (b"GET / HTTP/1.1", b"GET", b"/", "/"),
        (b"POST /a?b=/c HTTP/1.0", b"POST", b"/a?b=/c", "/a"),
        (b"OPTIONS * HTTP/1.1", b"OPTIONS", b"*", "*"),
        (b"PROPFIND /a%20b HTTP/1.1", b"PROPFIND", b"/a%20b", "/a%20b"),
        (b"GET http://h:1/x?y HTTP/1.1", b"GET", b"/x?y", "/x"),
        (b"GET HTTPS://h HTTP/1.1", b"GET", b"/", "/"),
        (b"GET http://h?q HTTP/1.1", b"GET", b"/?q", "/"),
        (b"GET //a//b HTTP/1.1", b"GET", b"/a/b", "/a/b"),
    ],
)
def test_request_lines(router: Router, line: bytes, method: bytes, target: bytes, path: str) -> None:
    route = router.find(line)
    assert (route.method, route.path) == (method, path)
    assert route.request_line == method + b" " + target + b" HTTP/1.1"
    assert route.http10 == line.endswith(b"1.0")
    assert route.is_head == (method == b"HEAD")


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"GET", b"GET /", b"GET  / HTTP/1.1", b"GET / HTTP/1.1 ", b" GET / HTTP/1.1", b"GET\t/\tHTTP/1.1"),
        *(b"GET / HTTP/1.2", b"GET / HTTP/2", b"GET / http/1.1", b"GET / HTTP/1.10", b"GET / HTTP/0.9"),
        *(b"G(T / HTTP/1.1", b"G\xc9T / HTTP/1.1", b" / HTTP/1.1", b"GET a HTTP/1.1", b"GET * HTTP/1.1"),
        *(b"GET /\x00 HTTP/1.1", b"GET /\x7f HTTP/1.1", b"GET /\r HTTP/1.1", b"GET /\n HTTP/1.1", b"GET /\t HTTP/1.1"),
        *(b"GET ftp://h/ HTTP/1.1", b"GET http:///x HTTP/1.1", b"GET http:// HTTP/1.1", b"GET h:1 HTTP/1.1"),
        *(b"GET http://u:p@h/ HTTP/1.1", b"GET http://h h/ HTTP/1.1"),
    ],
)
def test_what_is_no_request_line(router: Router, line: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        router.find(line)
    assert not router.routes


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        *((b"//v2/models", b"/v2/models"), (b"/v2/./models/", b"/v2/models/"), (b"/x/../v2//a", b"/v2/a")),
        *(
            (b"/../../v2", b"/v2"),
            (b"/a/b/..", b"/a/"),
            (b"/a/.", b"/a/"),
            (b"/..", b"/"),
            (b"/a/..", b"/"),
            (b"//", b"/"),
        ),
        *((b"/%76%32/a", b"/v2/a"), (b"/x/%2e%2E/v2", b"/v2"), (b"/%7euser", b"/~user"), (b"/a%2fb", b"/a%2fb")),
        *((b"/caf%c3%a9?q=%7e//../%", b"/caf%c3%a9?q=%7e//../%"), (b"/a.b/..c/.d", b"/a.b/..c/.d")),
    ],
)
def test_a_path_is_decided_on_and_sent_on_in_one_spelling(router: Router, written: bytes, sent: bytes) -> None:
    route = router.find(b"GET " + written + b" HTTP/1.1")
    assert route.request_line == b"GET " + sent + b" HTTP/1.1"
    assert route.path.encode() == sent.partition(b"?")[0]
    assert router.find(b"GET http://h" + written + b" HTTP/1.1").request_line == route.request_line


@pytest.mark.parametrize(
    "path",
    [
        *(b"/a\\b", b"/%", b"/%4", b"/%zz", b"/a%00", b"/%u002f"),
        *(b"/v2%2Fmodels/see/infer", b"/v2/models/talk%2F..%2Fsee/infer", b"/x/..%2Fv2/models/see/infer"),
        *(b"/%252e%252e/v2%252Fmodels/see/infer", b"/see%2Fdeeper", b"/x%5C..%5Cv2%5Cmodels%5Csee%5Cinfer"),
        b"/%25252525252541",
    ],
)
def test_a_path_that_servers_read_differently_is_refused(router: Router, path: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        router.find(b"POST " + path + b" HTTP/1.1")


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (b"/v2/models/a%2Fb/infer", "a/b"),
        (b"/v2/models/caf%C3%A9/infer", "café"),
        (b"/v2/models/50%25off/infer", "50%off"),
    ],
)
def test_names_with_escapes_are_still_names(router: Router, path: bytes, model: str) -> None:
    assert router.find(b"POST " + path + b" HTTP/1.1").model == model


@pytest.mark.parametrize("method", [b"CONNECT", b"TRACE"])
def test_methods_that_are_not_served(router: Router, method: bytes) -> None:
    with pytest.raises(MethodNotAllowedError):
        router.find(method + b" / HTTP/1.1")


@pytest.mark.parametrize(
    ("path", "model"),
    [
        *(("/see", "see"), ("/see/", "see"), ("/see/x", "see"), ("/seesaw", ""), ("/see/deep/x", "see")),
        *(("/see/deeper", "deep"), ("/see/deeper/x", "deep"), ("/see/deeperx", "see"), ("/other", "")),
        ("/v2/models/talk/infer", "talk"),
    ],
)
def test_paths_name_models_whole_part_by_whole_part(router: Router, path: str, model: str) -> None:
    assert router.find(b"POST " + path.encode() + b" HTTP/1.1").model == model


def test_the_dialect_is_told_by_the_path(router: Router) -> None:
    lines = {
        b"POST /v1/chat/completions HTTP/1.1": "openai",
        b"POST /v2/models/see/infer HTTP/1.1": "oip",
        b"POST /predict HTTP/1.1": "http",
    }
    assert {line: router.find(line).dialect.name for line in lines} == lines


def test_names_find_models(router: Router) -> None:
    assert router.resolve("talk") == "talk"
    assert router.resolve("nobody") is None
    assert router.resolve("") is None
    only = Router(parse_config("models: {one: {replicas: []}}"))
    assert (only.resolve(""), only.resolve("one"), only.resolve("two")) == ("one", "one", None)
    anything = Router(parse_config("models: {one: {replicas: []}, '*': {replicas: []}}"))
    assert (anything.resolve("one"), anything.resolve("two"), anything.resolve("")) == ("one", "*", "*")


def test_lines_are_remembered_within_bounds(router: Router) -> None:
    for number in range(2 * routing.MAX_CACHED_ROUTES + 10):
        router.find(b"GET /%d HTTP/1.1" % number)
        assert len(router.routes) <= routing.MAX_CACHED_ROUTES
    router.find(b"GET /" + b"a" * routing.MAX_CACHED_LINE_BYTES + b" HTTP/1.1")
    assert max(map(len, router.routes)) <= routing.MAX_CACHED_LINE_BYTES


def test_a_remembered_line_is_the_same_route(router: Router) -> None:
    route = router.find(b"GET /a HTTP/1.1")
    assert router.routes[b"GET /a HTTP/1.1"] is route
    assert router.find(b"GET /A HTTP/1.1").path == "/A"
    assert len(router.routes) == 2
