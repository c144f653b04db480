"""Bodies in which two readers find different models."""

import json

import pytest

from steelyard.protocols import make_dialect
from steelyard.protocols.bodies.ambiguity import find_models
from steelyard.protocols.bodies.multipart import form_ambiguity, form_field

openai = make_dialect("openai")
CHAT = openai.call("POST", "/v1/chat/completions")
SPEECH = openai.call("POST", "/v1/audio/transcriptions")
HONEST = {"model": "m", "messages": [{"role": "user", "content": 'say "model": "x" & model=y \n é'}], "max_tokens": 5}
TOOLS = {**HONEST, "tools": [{"function": {"parameters": {"properties": {"model": {"type": "string"}, "Model": {}}}}}]}


def doubt(body: bytes, content_type: bytes = b"application/json") -> str:
    peek = openai.read_body(CHAT, body, {})
    return "no JSON" if not peek.is_certain else openai.body_ambiguity(CHAT, body, {b"content-type": content_type})


@pytest.mark.parametrize("honest", [HONEST, TOOLS, {"messages": []}, {}])
@pytest.mark.parametrize("ascii", [True, False])
def test_honest_bodies_leave_no_doubt(honest: dict[str, object], ascii: bool) -> None:
    for indent in (None, 2):
        body = json.dumps(honest, ensure_ascii=ascii, indent=indent).encode()
        for content_type in (b"", b"application/json", b'Application/JSON; charset="UTF-8"', b"text/plain"):
            assert doubt(body, content_type) == ""


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"model":"a","model":"b"}', b'{"model":"a","messages":[],"model":"a"}', b'{"model":"a","Model":"b"}'),
        *(b'{"MODEL":"b"}', b'{"\\u006dodel":"b","model":"a"}', b'{"model":"a","mod\\u0065l":"b"}'),
        *(b'{"x":NaN,"model":"a"}', b'{"x":Infinity,"model":"a"}', b'\xef\xbb\xbf{"model":"a"}', b'{"model":"a"}{}'),
        *('{"model":"a"}'.encode("utf-16"), '{"model":"a"}'.encode("utf-32-le"), b"{'model':'a'}", b"model=a&x=1"),
        *(b'{"a":{"model":"a"},"b":1,}', b'{/**/"model":"a"}', b'{"x":{"model":"a"},"model":"b" "c"}'),
    ],
)
def test_bodies_that_readers_understand_differently(body: bytes) -> None:
    assert doubt(body)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (b"multipart/form-data; boundary=x", b'{"model":"a"}'),
        (b"application/x-www-form-urlencoded", b'{"model":"a","x":"&model=b&"}'),
        (b"application/x-www-form-urlencoded", b'{"model":"a","x":"&m%6fdel=b"}'),
        (b"application/json; charset=utf-7", b'{"model":"a"}'),
        (b"application/json; charset=utf-16", b'{"model":"a"}'),
    ],
)
def test_content_types_that_make_another_body_of_it(content_type: bytes, body: bytes) -> None:
    assert doubt(body, content_type)


def test_curl_says_form_and_sends_json() -> None:
    assert doubt(b'{"model":"a","prompt":"b=c&d"}', b"application/x-www-form-urlencoded") == ""


FORM = b"multipart/form-data; boundary=xyz"


def part(name: str, value: bytes = b"v", more: str = "") -> bytes:
    return f'--xyz\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


END = b"--xyz--\r\n"
FILE = part("file", b'RIFF\r\n"model"\x00--xy', '; filename="my name=model.wav"\r\nContent-Type: audio/wav')


@pytest.mark.parametrize("parts", [FILE + part("model"), part("model") + FILE + part("language"), FILE, b""])
def test_honest_forms_leave_no_doubt(parts: bytes) -> None:
    assert form_ambiguity(parts + END, FORM, b"model") == ""
    assert openai.body_ambiguity(SPEECH, parts + END, {b"content-type": FORM}) == ""


@pytest.mark.parametrize(
    "body",
    [
        *(part("model") + part("model") + END, part("model") + part("Model") + END, part("model") + FILE),
        b'{"model":"b","x":"\r\n' + part("model") + END,
        part("model") + b'--xyz\nContent-Disposition: form-data; name="model"\n\nb\n' + END,
        part("file", b"--xyz\r\n\r\n") + END,
        b'--xyz\r\nContent-Disposition: form-data; name="a"; name="model"\r\n\r\nb\r\n' + END,
        b"--xyz\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\nb\r\n" + END,
        b"--xyz\r\nContent-Disposition: form-data; name='mo' x=\"\r\n\r\nb\r\n" + END,
        b"--xyz\r\nX: 1\r\n\r\nb\r\n" + END,
    ],
)
def test_forms_that_readers_understand_differently(body: bytes) -> None:
    assert form_ambiguity(body, FORM, b"model")


def test_a_form_with_two_boundaries() -> None:
    assert form_ambiguity(part("model") + END, FORM + b"; boundary=abc", b"model")
    assert form_ambiguity(part("model") + END, b"multipart/form-data", b"model")


def test_every_mention_is_found_where_nothing_is_known_of_the_body() -> None:
    assert find_models(b'{"model":"a","x":{"Model" : "b\\u0063"},"model":1}') == {"a", "bc"}
    assert find_models(b'{"\\u006dod\\u0065l":"a"}') == {"a"}


FORM = b"multipart/form-data; boundary=xyz"


def parts(*given: tuple[bytes, bytes]) -> bytes:
    heads = [b"--xyz\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % one for one in given]
    return b"".join(heads) + b"--xyz--\r\n"


@pytest.mark.parametrize(
    "form",
    [
        parts((b'name="file"; x="; name=model"', b"small"), (b'name="model"', b"big")),
        parts((b'name="model"; x="; name=file"', b"big")),
        parts((b'name="file"; filename=" name=model"', b"small"), (b'name="model"', b"big")),
    ],
)
def test_a_name_inside_another_parameter_is_none(form: bytes) -> None:
    assert form_field(form, FORM, b"model") == "big" or form_ambiguity(form, FORM, b"model")


def test_a_field_that_only_some_take_for_the_model_is_refused() -> None:
    assert form_ambiguity(parts((b'name="Model"', b"big")), FORM, b"model")
    assert form_ambiguity(parts((b"name*=utf-8''model", b"big")), FORM, b"model")


def test_files_with_names_in_any_language_are_taken() -> None:
    form = parts((b'name="file"; filename="h.wav"; filename*=utf-8\'\'h%C3%A9.wav', b"x"), (b'name="model"', b"big"))
    assert (form_field(form, FORM, b"model"), form_ambiguity(form, FORM, b"model")) == ("big", "")
