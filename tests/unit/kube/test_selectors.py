"""Selectors: what is parsed, what is refused, and a model that they select as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kube.selectors import (
    FieldSelector,
    FieldTerm,
    LabelSelector,
    Operator,
    Requirement,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
)

# --- labels ---------------------------------------------------------------------------------

IN, NOT_IN, EXISTS = Operator.IN, Operator.NOT_IN, Operator.EXISTS
ABSENT, GREATER, LESS = Operator.DOES_NOT_EXIST, Operator.GREATER_THAN, Operator.LESS_THAN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", Requirement("a", EXISTS)),
        ("!a", Requirement("a", ABSENT)),
        (" ! a ", Requirement("a", ABSENT)),
        ("a=b", Requirement("a", IN, {"b"})),
        ("a==b", Requirement("a", IN, {"b"})),
        ("a!=b", Requirement("a", NOT_IN, {"b"})),
        ("\ta\r=\nb ", Requirement("a", IN, {"b"})),
        ("a=", Requirement("a", IN, {""})),
        ("a= ", Requirement("a", IN, {""})),
        ("a!=", Requirement("a", NOT_IN, {""})),
        ("a>1", Requirement("a", GREATER, {"1"})),
        ("a<007", Requirement("a", LESS, {"007"})),
        ("a in (b)", Requirement("a", IN, {"b"})),
        ("a in(c,b,c)", Requirement("a", IN, {"b", "c"})),
        ("a notin ( b , c )", Requirement("a", NOT_IN, {"b", "c"})),
        ("a in ()", Requirement("a", IN, {""})),
        ("a in ( )", Requirement("a", IN, {""})),
        ("a in (,)", Requirement("a", IN, {""})),
        ("a in (b,)", Requirement("a", IN, {"", "b"})),
        ("a in (,b)", Requirement("a", IN, {"", "b"})),
        ("a in (b,,c)", Requirement("a", IN, {"", "b", "c"})),
        ("a notin ()", Requirement("a", NOT_IN, {""})),
        ("in", Requirement("in", EXISTS)),
        ("!notin", Requirement("notin", ABSENT)),
        ("in in (in,notin)", Requirement("in", IN, {"in", "notin"})),
        ("notin=in", Requirement("notin", IN, {"in"})),
        ("example.com/a=B_c.D-e", Requirement("example.com/a", IN, {"B_c.D-e"})),
        (f"{'a' * 63}={'b' * 63}", Requirement("a" * 63, IN, {"b" * 63})),
    ],
)
def test_one_requirement(text: str, expected: Requirement) -> None:
    assert parse_label_selector(text) == LabelSelector((expected,))


def test_requirements_are_separated_by_commas() -> None:
    parsed = parse_label_selector("a,!b , c=,d in (x,y),e>1")
    assert [each.key for each in parsed.requirements] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("text", ["", " ", "\t\r\n "])
def test_nothing_selects_everything(text: str) -> None:
    parsed = parse_label_selector(text)
    assert not parsed
    assert parsed.matches({})
    assert parsed.matches({"a": "b"})


@pytest.mark.parametrize(
    "text",
    [
        *(",", ",a", "a,", "a,,b", "=", "=a", "!", "!!a", "!a=b", "!a in (b)", "a!", "a b"),
        "a=b c",
        *("a===b", "a=!b", "a=>1", "a>=1", "a in", "a in b", "a in (", "a in (b", "a in (b c)"),
        *("a in (b)c", "a in ((b))", "a in (!b)", "a not in (b)", "a IN (b)", "in (b)", "()"),
        *("a>", "a>,b", "a>x", "a<1.5", "a>-1", "a>+1", "a>1_0", "a>\u0661"),
        "a>9223372036854775808",
        *("-a", "a-", "_a", "a/b/c", "/a", "a/", "A.com/b", "a..b/c", f"{'a' * 64}", "é", "a\x00"),
        *("a=-b", "a=b-", "a=b/c", "a='b'", f"a={'b' * 64}", "a=é", f"{'a' * 254}/b", "a\v"),
        "a;b",
    ],
)  # fmt: skip
def test_what_is_no_label_selector(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_label_selector(text)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("a", ["empty", "one", "ten", "word"]),
        ("!a", ["none"]),
        ("a=1", ["one"]),
        ("a=", ["empty"]),
        ("a!=1", ["none", "empty", "ten", "word"]),
        ("a in (1,)", ["empty", "one"]),
        ("a notin (1,10)", ["none", "empty", "word"]),
        ("a>1", ["ten"]),
        ("a>0,a<10", ["one"]),
        ("a<99999", ["one", "ten"]),
        ("a,a!=1", ["empty", "ten", "word"]),
    ],
)
def test_a_missing_label_is_not_an_empty_one(text: str, chosen: list[str]) -> None:
    sets: dict[str, dict[str, str]] = {
        "none": {},
        "empty": {"a": ""},
        "one": {"a": "1"},
        "ten": {"a": "10"},
        "word": {"a": "1x"},
    }
    parsed = parse_label_selector(text)
    assert [name for name, labels in sets.items() if parsed.matches(labels)] == chosen


class Written(NamedTuple):
    """A requirement as text, and the plainest function that says what it means."""

    text: str
    holds: Callable[[Mapping[str, str]], bool]


_KEYS = st.sampled_from(["a", "b", "in", "notin", "x.io/a"])
_VALUES = st.sampled_from(["", "a", "in", "notin", "1", "2", "10", "x-y"])
_SPACE = st.sampled_from(["", " ", "\t", "\r\n "])


@st.composite
def _written(draw: st.DrawFn) -> Written:
    key, spaces = draw(_KEYS), [draw(_SPACE) for _ in range(4)]
    before, after, inner, end = spaces
    match draw(st.sampled_from(["exists", "absent", "equal", "set", "number"])):
        case "exists":
            return Written(f"{before}{key}{after}", lambda labels: key in labels)
        case "absent":
            return Written(f"{before}!{after}{key}{end}", lambda labels: key not in labels)
        case "equal":
            value, operator = draw(_VALUES), draw(st.sampled_from(["=", "==", "!="]))
            text = f"{before}{key}{after}{operator}{inner}{value}{end}"
            return Written(text, lambda labels: (labels.get(key) == value) != (operator == "!="))
        case "set":
            values, operator = draw(st.lists(_VALUES, max_size=3)), draw(st.sampled_from(_WORDS))
            members = f"{inner},{end}".join(values)
            text = f"{before}{key} {operator}{after}({inner}{members}{end})"
            chosen = values or [""]
            return Written(text, lambda labels: (labels.get(key) in chosen) == (operator == "in"))
        case _:
            bound, operator = draw(st.integers(0, 11)), draw(st.sampled_from("<>"))
            text = f"{before}{key}{after}{operator}{inner}{bound}{end}"
            return Written(text, lambda labels: _compares(labels.get(key, ""), operator, bound))


_WORDS = ["in", "notin"]


def _compares(value: str, operator: str, bound: int) -> bool:
    return value.isdigit() and (int(value) > bound if operator == ">" else int(value) < bound)


@given(st.lists(_written(), min_size=1, max_size=4), st.dictionaries(_KEYS, _VALUES))
def test_a_selector_holds_when_all_its_requirements_do(
    written: list[Written], labels: dict[str, str]
) -> None:
    parsed = parse_label_selector(",".join(each.text for each in written))
    assert parsed.matches(labels) == all(each.holds(labels) for each in written)


@given(st.text(alphabet="ab1 in\t!=<>(),-./_\x00é", max_size=30))
def test_text_is_parsed_or_refused(text: str) -> None:
    """And what is parsed means what its requirements say, each written in the plainest way."""
    try:
        parsed = parse_label_selector(text)
    except SelectorError:
        return
    plain = ",".join(_plain(each) for each in parsed.requirements)
    assert parse_label_selector(plain) == parsed


def _plain(requirement: Requirement) -> str:
    match requirement.operator:
        case Operator.EXISTS:
            return requirement.key
        case Operator.DOES_NOT_EXIST:
            return f"!{requirement.key}"
        case Operator.IN | Operator.NOT_IN as operator:
            return f"{requirement.key} {operator.value} ({','.join(requirement.values)})"
        case operator:
            return f"{requirement.key}{operator.value}{min(requirement.values)}"


# --- fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [FieldTerm("a", "b", negated=False)]),
        ("a==b", [FieldTerm("a", "b", negated=False)]),
        ("a!=b", [FieldTerm("a", "b", negated=True)]),
        ("a=", [FieldTerm("a", "", negated=False)]),
        ("a!=", [FieldTerm("a", "", negated=True)]),
        (" a = b ", [FieldTerm(" a ", " b ", negated=False)]),
        ("a.b=c,d!=e", [FieldTerm("a.b", "c", negated=False), FieldTerm("d", "e", negated=True)]),
        (",,a=b,,", [FieldTerm("a", "b", negated=False)]),
        (r"a=b\,c\=d\\e", [FieldTerm("a", r"b,c=d\e", negated=False)]),
        (r"a=\\,b=c", [FieldTerm("a", "\\", negated=False), FieldTerm("b", "c", negated=False)]),
        (r"a\,b=c", [FieldTerm(r"a\,b", "c", negated=False)]),
        ("a=!b", [FieldTerm("a", "!b", negated=False)]),
        ("a!b=c", [FieldTerm("a!b", "c", negated=False)]),
        ("=", [FieldTerm("", "", negated=False)]),
        ("a=(b)", [FieldTerm("a", "(b)", negated=False)]),
        ("a=b\nc", [FieldTerm("a", "b\nc", negated=False)]),
        ("a=b\n", [FieldTerm("a", "b\n", negated=False)]),
    ],
)
def test_field_terms(text: str, expected: list[FieldTerm]) -> None:
    assert parse_field_selector(text) == FieldSelector(tuple(expected))


@pytest.mark.parametrize("text", ["", ",", ",,,"])
def test_no_field_term_selects_everything(text: str) -> None:
    assert not parse_field_selector(text)


@pytest.mark.parametrize(
    "text",
    ["a", "a,b=c", "a=b=c", "a===b", "a!==b", "a=b\\", "a=b,\\", r"a=\b", "a=\\\n", "!a", "a>1"],
)
def test_what_is_no_field_selector(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_field_selector(text)


_FIELD_TERMS = st.builds(
    FieldTerm,
    field=st.sampled_from(["metadata.name", "spec.nodeName", "a!b"]),
    value=st.text(alphabet="ab\\,=! \n", max_size=8),
    negated=st.booleans(),
)


@given(st.lists(_FIELD_TERMS, max_size=4))
def test_escaped_values_come_back(terms: list[FieldTerm]) -> None:
    text = ",".join(
        f"{term.field}{'!=' if term.negated else '='}{_escape(term.value)}" for term in terms
    )
    assert parse_field_selector(text).terms == tuple(terms)


def _escape(value: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\,=" else letter for letter in value)


@given(st.text(alphabet="ab!=,\\ \n", max_size=20))
def test_field_text_is_read_letter_by_letter(text: str) -> None:
    """As the model below does, which knows no regular expression."""
    expected = _read_terms(text)
    if expected is None:
        with pytest.raises(SelectorError):
            parse_field_selector(text)
    else:
        assert parse_field_selector(text).terms == tuple(expected)


def _read_terms(text: str) -> list[FieldTerm] | None:
    pieces, escaped = [""], False
    for letter in text:
        if letter == "," and not escaped:
            pieces.append("")
            continue
        pieces[-1] += letter
        escaped = letter == "\\" and not escaped
    terms = [_read_term(piece) for piece in pieces if piece]
    known = [term for term in terms if term]
    return known if len(known) == len(terms) else None


def _read_term(piece: str) -> FieldTerm | None:
    places = [(piece.find(operator), -len(operator), operator) for operator in ("!=", "==", "=")]
    at, _, operator = min((place for place in places if place[0] >= 0), default=(-1, 0, ""))
    value = _unescape(piece[at + len(operator) :])
    return (
        FieldTerm(piece[:at], value, operator == "!=") if operator and value is not None else None
    )


def _unescape(value: str) -> str | None:
    plain = value
    for number, letter in enumerate(r"\,="):
        plain = plain.replace(f"\\{letter}", chr(0xE000 + number))
    if any(letter in plain for letter in r"\,="):
        return None
    for number, letter in enumerate(r"\,="):
        plain = plain.replace(chr(0xE000 + number), letter)
    return plain
