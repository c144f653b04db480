from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest

from steelyard.documents import (
    DocumentError,
    PartialDocument,
    Seconds,
    Share,
    Size,
    YamlDocument,
    decode_value,
    encode_value,
    format_key,
    parse,
    read,
    type_problems,
)
from steelyard.documents.problems import MAX_DIAGNOSTICS, MAX_QUOTED_CHARS


class Wheel(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    label: str = ""


class Cart(msgspec.Struct, forbid_unknown_fields=True):
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    names: dict[str, Wheel] = {}
    wait: Seconds = Seconds(1)
    weight: Size = Size(0)
    colour: Annotated[Literal["red", "green"], msgspec.Meta(description="of it")] = "red"
    doors: int | Literal["none"] = 1
    anything: dict[str, Any] = {}
    plate: Annotated[str, msgspec.Meta(pattern="^[A-Z]*$", max_length=7)] = ""

    def __post_init__(self) -> None:
        if self.doors == 7:
            raise ValueError("`doors` must be less than 7")


def errors(text: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse(text, Cart, "f")
    assert str(caught.value) == "\n".join(caught.value.lines)
    return list(caught.value.lines)


class Lamp(msgspec.Struct, forbid_unknown_fields=True):
    brightness: int = 1
    glow: int = 1

    __renamed__: ClassVar[dict[str, str]] = {"glare": "brightness"}


def test_a_key_of_an_earlier_version_is_told_with_its_name_of_today() -> None:
    def lamp_errors(text: str) -> list[str]:
        with pytest.raises(DocumentError) as caught:
            parse(text, Lamp, "f")
        return list(caught.value.lines)

    message = "top level: unknown key `glare`: renamed to `brightness`"
    assert lamp_errors("glow: 2\nglare: 1") == [f"f:2: {message}"]  # not `glow`, though that is more like it
    # its value counts as the one of today's key, and is checked as such, unless both are there
    assert lamp_errors("glare: much") == [f"f:1: {message}", "f:1: glare: expected a whole number, got text"]
    assert lamp_errors("glare: much\nbrightness: 1") == [f"f:1: {message}"]
    assert PartialDocument({"glare": 3}, Lamp).data == {"brightness": 3}


def test_all_mistakes_are_told_in_the_order_of_their_lines() -> None:
    text = """
wheels:
- {size: 1}
- {size: big}
- {}
names:
  a.b: {size: 1, lable: x}
  c: 3
wait: soon
colour: gren
doors: many
"""
    assert errors(text) == [
        "f:4: wheels[1].size: expected a whole number, got text",
        "f:5: wheels[2]: `size` is missing",
        'f:7: names."a.b": unknown key `lable` (did you mean `label`?)',
        "f:8: names.c: expected a mapping, got a whole number",
        "f:9: wait: 'soon' is not a duration: write for example 200ms, 1.5s or 2m",
        "f:10: colour: no such value: 'gren' (did you mean `green`?)",
        "f:11: doors: no such value: 'many' (it takes a whole number, none)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zzz: 1", "top level: unknown key `zzz` (it takes wheels, spare, names, wait, "),
        ("spare: {size: 1, label: 5}", "spare.label: expected text, got a whole number (put it in quotes)"),
        ("spare: {size: 1, label: 2020-01-01}", "spare.label: expected text, got a date (put it in quotes)"),
        ("spare: {size: 1, label: yes}", "spare.label: expected text, got true or false (put it in quotes)"),
        ("names:", "names: expected a mapping, got nothing (there is nothing behind the key"),
        ("weight:", "weight: none is not a size: write for example 64KiB, 10MiB or 80GiB (there is nothing"),
        ("names: {7: {size: 1}}", "names: the key 7 is not text: put it in quotes"),
        ("7: 1", "top level: the key 7 is not text: put it in quotes"),
        ("plate: AAAABBBB", "plate: expected text of up to 7 characters"),
        ("plate: a'b", "plate: expected text that matches ^[A-Z]*$"),
        ("wheels: [null]", "wheels[0]: expected a mapping, got nothing"),
        ("doors: 7", "top level: `doors` must be less than 7"),
        ("[]", "top level: expected a mapping, got a list"),
        ("wheels: {}", "wheels: expected a list, got a mapping"),
    ],
)
def test_what_would_be_right(text: str, message: str) -> None:
    (line,) = errors(text)
    assert line.startswith(f"f:1: {message}")


def test_a_key_that_is_there_twice() -> None:
    text = "names:\n  a: {size: 1}\n  b: {size: 1, size: 2}\n  a: {size: 3}\ndoors: x\n"
    assert errors(text) == [
        "f:3: names.b: `size` is there twice, first in line 3: remove one or rename it",
        "f:4: names: `a` is there twice, first in line 2: remove one or rename it",
        "f:5: doors: no such value: 'x' (it takes a whole number, none)",
    ]
    assert errors("doors: 1\n'doors': 1\n") == [
        "f:2: top level: `doors` is there twice, first in line 1: remove one or rename it"
    ]


def test_a_key_that_overrides_a_merged_one_is_no_repetition() -> None:
    text = "names:\n  a: &a {size: 1, label: x}\n  b: {<<: *a, size: 2}\n"
    assert parse(text, Cart).names["b"] == Wheel(2, "x")


def test_a_mistake_in_what_was_merged_is_told_where_it_stands() -> None:
    text = "names:\n  a: &a\n    size: x\n  b:\n    <<: *a\n  c:\n    <<: [*a]\n"
    assert [line.partition(": expected")[0] for line in errors(text)] == [
        "f:3: names.a.size",
        "f:3: names.b.size",
        "f:3: names.c.size",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f:1: not valid YAML: "),
        ("a: 1\nb: \x00", "f:2: not valid YAML: special characters are not allowed"),
        ('anything: {a: "\\ud800"}', "f: not valid YAML: 'utf-8' codec can't encode"),
        ("anything: &a\n  x: *a", "f:1: an alias stands for something that contains it"),
        ("[" * 5000, "f:1: not valid YAML: nested deeper than 64 levels"),
        ("[\n" * 100, "f:65: not valid YAML: nested deeper than 64 levels"),
        ("a: 1\n---\nb: 2", "f:2: not valid YAML: but found another document"),
        ("? [a]\n: b", "f:1: not valid YAML: found unhashable key"),
        ("a:\n  ? {b: c}\n  : d", "f:2: not valid YAML: found unhashable key"),
        ("a: !!python/object:os.system b", "f:1: not valid YAML: could not determine a constructor"),
        ("a: !!bool x", "f:1: not valid YAML: not a valid bool"),
        ("a: !!int ''", "f:1: not valid YAML: not a valid int"),
        ("a: !!timestamp x", "f:1: not valid YAML: not a valid timestamp"),
        ("a: 1\nb: 2026-13-01", "f:2: not valid YAML: not a valid timestamp"),
        ("", "f: the file is empty"),
        ("# nothing", "f: the file is empty"),
    ],
)
def test_what_is_no_yaml(text: str, message: str) -> None:
    (line,) = errors(text)
    assert line.startswith(message)


def test_what_a_terminal_obeys_is_not_repeated() -> None:
    said = "\n".join(errors('names: {"\\e[31m": {"\\e]0;owned\\a": 1}}'))
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\\x1b]0;owned\\x07" in said


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(DocumentError, match=r"^/dev/zero: larger than 16 MiB$"):
        read("/dev/zero")


def test_aliases_that_nest_too_deeply() -> None:
    lines = ["anything:", "  a0: &a0 [x]", *(f"  a{n}: &a{n} [[[[*a{n - 1}]]]]" for n in range(1, 30))]
    assert errors("\n".join(lines)) == ["f:18: nested deeper than 64 levels, aliases written out"]


def test_of_many_errors_the_first_are_told_and_how_many_more_there_are() -> None:
    lines = errors("".join(f"key{n}: 1\n" for n in range(1000)))
    assert len(lines) == MAX_DIAGNOSTICS + 1
    assert [line.split(":")[1] for line in lines[:-1]] == [str(n + 1) for n in range(MAX_DIAGNOSTICS)]
    assert lines[-1].startswith(f"f: {1000 - MAX_DIAGNOSTICS} more errors are not shown: correct these first")


def test_what_an_error_takes_from_a_file_is_bounded() -> None:
    (line,) = errors(f"? {'x' * 100_000}\n: 1\n")
    assert len(line) < 2 * MAX_QUOTED_CHARS
    (line,) = errors(f"doors: {'y' * 100_000}\n")
    assert "doors: no such value" in line
    assert len(line) < 2 * MAX_QUOTED_CHARS


def test_a_few_lines_that_stand_for_billions_of_values() -> None:
    lines = ["anything:", "  a0: &a0 [x, x]", *(f"  a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    (line,) = errors("\n".join(lines))
    assert "more than 1,000,000 values" in line


def test_lines_of_keys() -> None:
    tree = YamlDocument("a:\n  b.c:\n  - x\n  - y\n")
    assert tree.line(()) == 1
    assert tree.line(("a", "b.c")) == 2
    assert tree.line(("a", "b.c", 1)) == 4
    assert tree.line(("a", "b.c", 7)) == 2
    assert tree.line(("a", "nope", "deeper")) == 1
    assert YamlDocument("a:\n- b\n- c: d\n").line(("a", 1, "c")) == 3


def test_keys_for_people() -> None:
    assert format_key(()) == "top level"
    assert format_key(("a", "b", 0, "c")) == "a.b[0].c"
    assert format_key(("a", "gpt-4.1", "c d", "*")) == 'a."gpt-4.1"."c d".*'


def test_nothing_is_wrong_with_what_fits() -> None:
    data = {"wheels": [{"size": 1}], "names": {"a": {"size": 2}}, "spare": None, "doors": "none", "wait": "1s"}
    assert list(type_problems(data, Cart)) == []


@pytest.mark.parametrize("value", [Seconds(1.5), Size(7), Share(0.5)])
def test_values_travel(value: Any) -> None:
    data = msgspec.msgpack.encode(value, enc_hook=encode_value)
    assert msgspec.msgpack.decode(data, type=type(value), dec_hook=decode_value) == value


def test_other_types_do_not() -> None:
    with pytest.raises(NotImplementedError):
        encode_value(object())
    with pytest.raises(NotImplementedError):
        decode_value(object, 1)
