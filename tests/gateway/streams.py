"""Streams of chunks, good and bad, and ways to split and spoil any bytes."""

from itertools import pairwise

from hypothesis import strategies as st

LINE_LIMIT_BYTES = 64  # in tests of long lines: as long as one may be

Changes = list[tuple[int, int, bytes]]  # (where, how many bytes go, what comes instead)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


lengths = st.integers(0, 40) | st.sampled_from([LINE_LIMIT_BYTES + n for n in range(-8, 3)])
extensions = st.sampled_from([b"", b";", b";a", b" ;a=b", b';a="b c"', b"\t; \xe9"])
chunk = st.builds(
    lambda data, zeros, upper, more, long: (
        (
            b"0" * zeros
            + (b"%X" if upper else b"%x") % len(data)
            + (more + b"x" * long if more else b"")
            + b"\r\n"
            + data
        )
        + b"\r\n"
    ),
    st.binary(min_size=1, max_size=30),
    st.integers(0, 3),
    st.booleans(),
    extensions,
    lengths,
)
trailer = st.builds(lambda name, n: name + b": " + b"y" * n + b"\r\n", st.sampled_from([b"x", b"etag"]), lengths)
streams = st.builds(
    lambda body, more, last, rest: b"".join(body) + b"0" + more + b"\r\n" + b"".join(last) + b"\r\n" + rest,
    st.lists(chunk, max_size=5),
    extensions,
    st.lists(trailer, max_size=3),
    st.sampled_from([b"", b"GET / HTTP/1.1\r\n", b"\r\n", b"0\r\n\r\n"]),
)
EVIL = [b"", b"\r", b"\n", b"\r\n", *(bytes([c]) for c in b"0fg \t;+-x_\x00\x0b\xff")]
changes: st.SearchStrategy[Changes] = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 2), st.sampled_from(EVIL)), max_size=3
)


def mutated(data: bytes, changes: Changes) -> bytes:
    for place, gone, put in changes:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + gone :]
    return data
