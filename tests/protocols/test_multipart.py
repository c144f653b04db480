"""A field of a form, found without parsing the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.protocols.bodies.multipart import MAX_PARTS, MAX_VALUE_BYTES, form_field

FORM = b"multipart/form-data; boundary=xyz"


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--xyz\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


def model(body: bytes, content_type: bytes = FORM) -> str | None:
    return form_field(body, content_type, b"model")


END = b"--xyz--\r\n"


@pytest.mark.parametrize(
    "content_type",
    [
        b"multipart/form-data; boundary=xyz",
        b'Multipart/Form-Data; charset=utf-8; BOUNDARY="xyz"',
        b"multipart/form-data;boundary=xyz; charset=utf-8",
    ],
)
def test_wherever_the_boundary_is_told(content_type):
    assert model(part("language", b"de") + part("model", b"whisper-1") + END, content_type) == "whisper-1"


@pytest.mark.parametrize("content_type", [b"", b"multipart/form-data", b"multipart/mixed; boundary=xyz", b"text/plain"])
def test_no_form_no_field(content_type):
    assert model(part("model", b"whisper-1") + END, content_type) is None


def test_other_names_are_others():
    assert model(part("models", b"no") + part("xmodel", b"no") + END) is None
    assert model(part("file", b"no", '; filename="model"') + part("model", b"yes") + END) == "yes"
    assert model(part("file", b'name="model"\r\n\r\nno') + part("model", b"yes") + END) == "yes"


def test_headers_in_any_order_and_case():
    body = (
        b"--xyz\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; name=model\r\n\r\nwhisper-1\r\n--xyz--"
    )
    assert model(body) == "whisper-1"


def test_the_first_of_two_counts_and_it_may_be_empty():
    assert model(part("model", b"a") + part("model", b"b") + END) == "a"
    assert model(part("model", b"") + END) == ""
    assert model(b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\n--xyz--') == ""


def test_a_preamble_is_passed_over():
    assert model(b"This is a form.\r\n" + part("model", b"a") + END) == "a"


def test_what_looks_like_a_boundary_inside_a_file_is_none():
    sound = b"\x00--xyz\r\n\r\n-xyz\n--xyz"
    assert model(part("file", sound, '; filename="a"') + part("model", b"a") + END) == "a"


def test_a_form_that_is_cut_tells_only_what_is_whole():
    whole = part("model", b"whisper-1") + part("file", b"123") + END
    found = [model(whole[:length]) for length in range(len(whole))]
    assert set(found) == {None, "whisper-1"}
    assert found == sorted(found, key=lambda value: value is not None), "once known, it stays known"


def test_nonsense_has_an_end():
    assert model(part("x", b"") * MAX_PARTS + part("model", b"a") + END) is None
    assert model(part("model", b"a" * (MAX_VALUE_BYTES + 1)) + END) is None
    assert model(part("model", b"a" * MAX_VALUE_BYTES) + END) == "a" * MAX_VALUE_BYTES
    assert model(part("model", b"\xff") + END) == "\ufffd"


@given(st.binary(max_size=200).filter(lambda data: b"xyz" not in data), st.text(min_size=1, max_size=40))
def test_any_file_before_the_field(data, name):
    value = name.encode("utf-8", "replace")
    if b"\r\n--xyz" in b"\r\n" + value:
        return
    body = part("file", data, '; filename="a.wav"') + part("model", value) + END
    assert model(body) == value.decode()
