"""Header lines: what is taken, what is refused, and that remembering lines never changes either."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.gateway.http import headers
from steelyard.gateway.http.headers import (
    REQUEST_ROLES,
    RESPONSE_ROLES,
    Header,
    HeaderTable,
    MalformedMessageError,
    parse_content_length,
    parse_line,
    tokens,
)

TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NAMES = sorted({*REQUEST_ROLES, *RESPONSE_ROLES, b"accept", b"authorization", b"cookie"})


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (b"Host: a", b"host", b"a"),
        (b"HOST:a", b"host", b"a"),
        (b"x: \t a b\t ", b"x", b"a b"),
        (b"x:", b"x", b""),
        (b"x: \t", b"x", b""),
        (b"x: a:b", b"x", b"a:b"),
        (b"x:\xe9\xff", b"x", b"\xe9\xff"),
        (b"!#$%&'*+-.^_`|~9: 1", b"!#$%&'*+-.^_`|~9", b"1"),
    ],
)
def test_a_line_is_a_name_and_a_value(line: bytes, name: bytes, value: bytes) -> None:
    assert parse_line(line) == (name, value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "no colon"),
        (b"host", "no colon"),
        (b": a", "not allowed"),
        (b" host: a", "continued"),
        (b"\thost: a", "continued"),
        (b"host : a", "space between"),
        (b"host\t: a", "space between"),
        (b"ho st: a", "not allowed"),
        (b"h\xf6st: a", "not allowed"),
        (b"h(st): a", "not allowed"),
        (b"x: a\x00b", "not allowed"),
        (b"x: a\rb", "not allowed"),
        (b"x: a\r", "not allowed"),
        (b"x: a\nb", "not allowed"),
        (b"x: a\n", "not allowed"),
        (b"x: a\x7f", "not allowed"),
        (b"x\x00: a", "not allowed"),
        (b"x\n: a", "space between"),
    ],
)
def test_what_could_be_read_two_ways_is_refused(line: bytes, says: str) -> None:
    with pytest.raises(MalformedMessageError, match=says):
        parse_line(line)


@given(st.binary(max_size=12) | st.builds(lambda a, b: a + b":" + b, st.sampled_from(NAMES), st.binary(max_size=6)))
def test_exactly_the_grammar_of_rfc_9110_is_taken(line: bytes) -> None:
    name, colon, value = line.partition(b":")
    good = bool(name and colon) and all(c in TOKEN for c in name) and all(c == 9 or 32 <= c != 127 for c in value)
    try:
        assert parse_line(line) == (name.lower(), value.strip(b" \t"))
        assert good
    except MalformedMessageError:
        assert not good


# ---------------------------------------------------------------------- the memory


def looked_up(known: HeaderTable, line: bytes) -> tuple[int, bytes, bytes, bytes] | str | None:
    """As `read_head` and `ResponseHead` do it."""
    field: Header | None
    try:
        field = known.cache[line] if line in known.cache else known.classify_new(line)
    except MalformedMessageError as problem:
        return str(problem)
    return (field.role, field.name, field.value, field.line) if field else None


def cased(name: bytes, flips: int) -> bytes:
    return bytes(c ^ 32 if chr(c).isalpha() and flips >> i & 1 else c for i, c in enumerate(name))


lines = st.builds(
    lambda name, flips, before, value, after: cased(name, flips) + b":" + before + value + after,
    st.sampled_from(NAMES) | st.sampled_from([b"host ", b" host", b"x-tenant", b"content_length"]),
    st.integers(0, 1 << 12),
    st.sampled_from([b"", b" ", b"\t", b"\x0b", b"\xa0"]),
    st.sampled_from([b"", b"1", b"chunked", b"close", b"a\x00", b"a\r"]),
    st.sampled_from([b"", b" ", b"\t"]),
)


@given(st.lists(lines, max_size=30), st.sampled_from([REQUEST_ROLES, RESPONSE_ROLES]))
def test_a_line_means_the_same_whatever_was_seen_before(seen: list[bytes], roles: dict[bytes, int]) -> None:
    known = HeaderTable(roles, (b"x-tenant",))
    for line in seen + seen:
        assert looked_up(known, line) == looked_up(HeaderTable(roles, (b"x-tenant",)), line)


def test_a_plain_line_of_answers_is_still_special_in_requests() -> None:
    requests, answers = HeaderTable(REQUEST_ROLES), HeaderTable(RESPONSE_ROLES)
    assert answers.classify_new(b"host: a") is None
    field = requests.classify_new(b"host: a")
    assert field is not None
    assert field.role == headers.ROLE_HOST


def test_the_memory_is_bounded() -> None:
    known = HeaderTable(REQUEST_ROLES)
    for number in range(3 * headers.MAX_CACHED_LINES):
        known.classify_new(b"x-number: %d" % number)
        assert len(known.cache) <= headers.MAX_CACHED_LINES
    known.classify_new(b"x-long: " + b"a" * headers.MAX_CACHED_LINE_BYTES)
    assert max(map(len, known.cache)) <= headers.MAX_CACHED_LINE_BYTES


def test_what_is_refused_is_not_remembered() -> None:
    known = HeaderTable(REQUEST_ROLES)
    for _ in range(2):
        with pytest.raises(MalformedMessageError):
            known.classify_new(b"host : a")
    assert not known.cache


@pytest.mark.parametrize("name", [b"authorization", b"cookie"])
@pytest.mark.parametrize("flips", [0, 1, 0xFFFF])
def test_secrets_are_not_remembered(name: bytes, flips: int) -> None:
    known = HeaderTable(REQUEST_ROLES)
    assert known.classify_new(cased(name, flips) + b":\tsecret") is None
    assert not known.cache


def test_what_a_dialect_wants_to_know_never_takes_the_place_of_a_check() -> None:
    known = HeaderTable(REQUEST_ROLES, (b"content-length", b"x-tenant"))
    length, tenant = known.classify_new(b"Content-Length: 5"), known.classify_new(b"X-Tenant: a")
    assert length is not None
    assert length.role == headers.ROLE_CONTENT_LENGTH
    assert tenant is not None
    assert tenant.role == headers.ROLE_WANTED


@pytest.mark.parametrize("line", [b"Authorization: key", b"authorization: key", b"AUTHORIZATION:key"])
def test_a_secret_that_names_the_tenant_is_looked_at(line: bytes) -> None:
    known = HeaderTable(REQUEST_ROLES, (b"authorization",))
    field = known.classify_new(line)
    assert field is not None
    assert (field.role, field.value) == (headers.ROLE_WANTED, b"key")
    assert not known.cache


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize("value", [b"", b"+5", b"-5", b"0x5", b"5_0", b"5 5", b"5,5", b"5.0", b"\xb2", b"9" * 19])
def test_a_length_is_digits_only(value: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        parse_content_length(value)


def test_lengths() -> None:
    assert [parse_content_length(value) for value in (b"0", b"05", b"9" * 18)] == [0, 5, 10**18 - 1]


def test_lists_have_empty_members_and_space() -> None:
    assert tokens(b" Close ,,\tKeep-Alive,") == [b"close", b"keep-alive"]
