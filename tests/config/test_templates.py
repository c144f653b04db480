from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config.commands import PLACEHOLDERS, fill_in, placeholder_error, split_command, uses_placeholder

VALUES = {"port": 8000, "model": "meta/llama 3", "device": "node1/gpu0", "gpu": "0", "id": "r1", "url": "http://a:8000"}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python server.py --port {port}", ["python", "server.py", "--port", "{port}"]),
        ("a 'b c' \"d 'e\" f\\ g ''", ["a", "b c", "d 'e", "f g", ""]),
        ("a # no comment", ["a", "#", "no", "comment"]),
        (["a b", "", "'"], ["a b", "", "'"]),
        (("a",), ["a"]),
    ],
)
def test_a_text_is_split_as_a_shell_does_and_a_list_is_not(command: str | list[str], found: list[str]) -> None:
    assert split_command(command) == found


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("a 'b", '"a \'b": a quote or a backslash at its end is not finished'),
        ("a \\", "'a \\\\': a quote or a backslash at its end is not finished"),
        ("", "name a program, for example steelyard demo-replica --port {port}"),
        ("  ", "name a program"),
        ("'' a", "name a program"),
        ([], "name a program"),
        (["", "a"], "name a program"),
    ],
)
def test_what_is_no_command(command: str | list[str], what: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(what)}"):
        split_command(command)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--port={port}", "--port=8000"),
        ("{port}{port} {id}", "80008000 r1"),
        ("{model}", "meta/llama 3"),
        ('{"a": {"b": {port}}}', '{"a": {"b": 8000}}'),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ("{{port}} {{", "{{port}} {{"),  # another template's
        ("${port} $port", "${port} $port"),  # a shell's
        ("{PORT} {Port} { port } {} {port", "{PORT} {Port} { port } {} {port"),
        ("{other}", "{other}"),
    ],
)
def test_only_known_words_in_single_braces_are_filled_in(text: str, found: str) -> None:
    assert fill_in(text, VALUES) == found


def test_what_is_filled_in_is_not_read_again() -> None:
    assert fill_in("{model} {port}", {"model": "{port}", "port": 1}) == "{port} 1"


def test_a_word_without_a_value_stays() -> None:
    assert fill_in("{port} {gpu}", {"port": 1}) == "1 {gpu}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{port} {id}", ""),
        ("{{prot}} ${prot} {Prot}", ""),
        ("{prot}", "`{prot}` is not filled in: did you mean `{port}`?"),
        (
            "{port} {host}",
            "`{host}` is not filled in: there are `{port}`, `{model}`, `{device}`, `{gpu}`, `{id}`, `{url}`",
        ),
    ],
)
def test_a_slip_is_told(text: str, what: str) -> None:
    assert placeholder_error(text) == what


def test_which_words_a_text_uses() -> None:
    assert [word for word in PLACEHOLDERS if uses_placeholder("--port {port} {{id}} ${gpu}", word)] == ["port"]


@given(st.text(alphabet="{}$port idx\"':1", max_size=40))
def test_any_text_can_be_filled_in(text: str) -> None:
    if not any(uses_placeholder(text, word) for word in PLACEHOLDERS):
        assert fill_in(text, VALUES) == text
    placeholder_error(text)


@given(
    st.recursive(st.integers() | st.text(alphabet="abZ {}:"), lambda x: st.dictionaries(st.text("abc", min_size=1), x))
)
def test_json_goes_through_unless_its_texts_have_words_of_ours(value: object) -> None:
    text = json.dumps(value)
    assert fill_in(text, VALUES) == text
