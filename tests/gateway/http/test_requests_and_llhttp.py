"""What the gateway takes for a request, llhttp takes for the same request: the next server may well be built on it."""

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from ..conftest import ONE
from ..reading import Message, answer, read_answers, read_requests
from ..stage import Stage
from ..streams import Changes, changes, cut, mutated, streams


class Llhttp:
    """The requests in a stream of bytes, up to the first that is refused."""

    def __init__(self, data: bytes) -> None:
        self.requests: list[Message] = []
        self.refused = False
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.refused = True

    def on_message_begin(self) -> None:
        self._url = b""
        self._message = Message("", whole=False)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lines = self._message.trailers if self._message.first else self._message.headers
        lines.append((name.decode("latin-1").lower(), value.rstrip(b" \t").decode("latin-1")))

    def on_headers_complete(self) -> None:
        line = self._parser.get_method() + b" " + self._url + b" HTTP/" + self._parser.get_http_version().encode()
        self._message.first = line.decode("latin-1")
        self.requests.append(self._message)

    def on_body(self, data: bytes) -> None:
        self._message.body += data

    def on_message_complete(self) -> None:
        self._message.whole = True


def through(pieces: list[bytes]) -> tuple[list[Message], list[Message]]:
    """What the replica was asked, and what the client was told, when every request is answered at once."""
    stage = Stage(ONE)
    try:
        client = stage.client()
        asked: list[Message] = []
        for piece in pieces:
            client.says(piece)
            while stage.dialling or stage.proxy.active:
                replica = stage.replica()
                heard = read_requests(replica.hears())
                if not heard or not heard[-1].whole:
                    break
                asked += heard
                replica.says(answer())
        responses = read_answers(client.hears(), [message.first.split(" ")[0] for message in asked])
        client.breaks()
        stage.check_idle()
        return asked, responses
    finally:
        stage.close()


methods = st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "get", "POST "])
targets = st.sampled_from(
    ["/", "/a?b=c", "*", "http://h/x", "http://h", "//a", "/a b", "a", "", "/\xff", "/a\x7f", "/#f"]
)
versions = st.sampled_from(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", ""])
header = st.sampled_from(
    [
        *(
            "content-length: 5",
            "Content-Length:5 ",
            "content-length: +5",
            "content-length: 5, 5",
            "content-length: 0x5",
        ),
        *("content-length: 05", "content-length: 0", "content-length : 5", "content-length:\x0b5", "content-length"),
        *("transfer-encoding: chunked", "Transfer-Encoding:CHUNKED", "transfer-encoding: gzip, chunked"),
        *("transfer-encoding: chunked, identity", "transfer-encoding:\x0bchunked", "transfer-encoding: chunked;q=1"),
        *("transfer-encoding: identity", "transfer-encoding: xchunked", "transfer_encoding: chunked"),
        *("connection: close", "connection: keep-alive", "connection: content-length", "connection: x-a, host"),
        *(
            "x-a: 1",
            "X-A:\t2 ",
            "x-b:",
            " folded: 1",
            "x-c: \xe9",
            "x-d: a\x00b",
            "x-e: a\rb",
            "x-f: a\nb",
            ":x",
            "host: b",
        ),
        *("expect: 100-continue", "te: trailers", "trailer: x", "keep-alive: 5", "authorization: a", "via: 1.0 b"),
    ]
)
bodies = st.sampled_from([b"", b"hello", b"hell", b"hello\r\n", b"hello" * 3]) | streams
requests = st.builds(
    lambda method, target, version, hosts, headers, end, body: (
        "\r\n".join([f"{method} {target} {version}", *hosts, *headers]).encode("latin-1") + end + body
    ),
    *(methods, targets, versions),
    st.sampled_from([["host: a"], ["host: a"], ["host: a"], [], ["Host:a", "host: a"]]),
    st.lists(header, max_size=4),
    st.sampled_from([b"\r\n\r\n", b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n\n"]),
    bodies,
)
METHODS = {"GET", "POST", "PUT", "HEAD", "OPTIONS"}
HOPS = {"connection", "keep-alive", "te", "transfer-encoding", "content-length", "expect", "host", "upgrade"}
ADDED = {"via", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id", "traceparent"}


def end_to_end(message: Message) -> list[tuple[str, str]]:
    named = {name.strip().lower() for value in message.all("connection") for name in value.split(",")}
    return sorted((name, value) for name, value in message.headers if name not in HOPS | ADDED | named)


def test_the_oracle_itself() -> None:
    theirs = Llhttp(b"POST /a HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\n\r\n")
    assert theirs.requests == [
        Message("POST /a HTTP/1.1", [("host", "b"), ("content-length", "2")], b"hi"),
        Message("GET / HTTP/1.1"),
    ]
    assert Llhttp(b"GET / HTTP/1.1\r\nx : 1\r\n\r\n").refused


def test_a_plain_request_goes_through() -> None:
    asked, responses = through([b"POST /a HTTP/1.1\r\nhost: b\r\ncontent-length: 2\r\n\r\nhi"])
    assert [(m.first, m.body, m["host"]) for m in asked] == [("POST /a HTTP/1.1", b"hi", "b")]
    assert [m.status for m in responses] == [200]


def target_of(first: str) -> str:
    """As it is passed on: without the authority (RFC 9112, 3.2.1)."""
    target = first.split(" ")[1]
    return "/" + target.removeprefix("http://h").removeprefix("/") if target.startswith("http://") else target


def allowed(data: bytes, ours: Message) -> bool:
    """Where llhttp refuses more than the RFCs: methods it has not heard of (RFC 9110, 9.1: any token), extensions of
    chunks with space before them (RFC 9112, 7.1.1; none is passed on)."""
    return ours.first.split(" ")[0] not in METHODS or b";" in data


def agrees(ours: Message, theirs: Message) -> None:
    assert ours.first.split(" ")[0] == theirs.first.split(" ")[0]
    assert target_of(ours.first) == target_of(theirs.first)
    assert ours.body == theirs.body
    assert end_to_end(ours) == end_to_end(theirs)


@given(st.lists(requests, min_size=1, max_size=3).map(b"".join), changes, st.lists(st.integers(0, 999), max_size=3))
@example(b"GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", [], [])
@example(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: 1\r\n\r\n", [], [])
def test_what_is_passed_on_is_what_llhttp_reads(data: bytes, changes: Changes, places: list[int]) -> None:
    data = mutated(data, changes)
    asked, responses = through(cut(data, places))
    theirs = Llhttp(data)
    for number, ours in enumerate(asked):
        assert ours.whole
        if number < len(theirs.requests) and theirs.requests[number].whole:
            agrees(ours, theirs.requests[number])
        else:
            assert theirs.refused
            assert allowed(data, ours), f"taken, though llhttp refuses it: {data!r}"
    assert sum(message.status == 200 for message in responses) == len(asked)
