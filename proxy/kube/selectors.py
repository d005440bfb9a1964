"""Label and field selectors, as apimachinery's ``pkg/labels`` and ``pkg/fields`` read them.

What doesn't parse raises SelectorError and is the API server's to refuse; being stricter than it
would be harmless, being more lenient would be wrong.
"""

import re
from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import NamedTuple


class SelectorError(ValueError):
    """Not a selector."""


class Operator(Enum):
    """How a requirement compares."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = ">"
    LESS_THAN = "<"


class Requirement(NamedTuple):
    """One term of a label selector; equality is IN with one value."""

    key: str
    operator: Operator
    values: Set[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Compare with a label set; where the key is missing only negations hold."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN:
                return _compares(value, self.values, int.__gt__)
            case Operator.LESS_THAN:
                return _compares(value, self.values, int.__lt__)


class LabelSelector(NamedTuple):
    """Requirements that all have to hold; without any it selects everything and is falsy."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a label set is selected."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldTerm(NamedTuple):
    """One term of a field selector."""

    field: str
    value: str
    negated: bool


class FieldSelector(NamedTuple):
    """Terms that all have to hold; without any it selects everything and is falsy."""

    terms: tuple[FieldTerm, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)


_INT64 = range(-(2**63), 2**63)


def _integer(text: str) -> int | None:
    """``strconv.ParseInt(text, 10, 64)``; None for an error."""
    if re.fullmatch(r"[+-]?[0-9]+", text) and int(text) in _INT64:
        return int(text)
    return None


def _compares(value: str | None, bounds: Set[str], holds: Callable[[int, int], bool]) -> bool:
    [bound] = bounds
    number, limit = _integer(value or ""), _integer(bound)
    return number is not None and limit is not None and holds(number, limit)


# --- labels ---------------------------------------------------------------------------------

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[!(),=<>]|[^ \t\r\n!(),=<>]+|$)")
_SYMBOLS = frozenset({"==", "!=", "!", "(", ")", ",", "=", "<", ">"})
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(rf"((?=.{{1,253}}/){_DNS}/)?{_NAME}")
_VALUE = re.compile(rf"({_NAME})?")

_SINGLE = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_SETS = {"in": Operator.IN, "notin": Operator.NOT_IN}


def parse_label_selector(text: str) -> LabelSelector:
    """Read a ``labelSelector`` parameter; "" selects everything. Raises SelectorError."""
    tokens = _Tokens(text)
    requirements = []
    while tokens.next:
        requirements.append(_requirement(tokens))
        if tokens.next:
            tokens.expect(",")
            if not tokens.next:
                raise SelectorError("found '', expected: identifier after ','")
    return LabelSelector(tuple(requirements))


class _Tokens:
    """The tokens of a selector, one ahead; "" is the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.next = ""
        self.take()

    def take(self) -> str:
        """Return the next token and look at the one behind it."""
        taken = self.next
        found = _TOKEN.match(self._text, self._at)
        self.next = found[1] if found else ""
        self._at = found.end() if found else len(self._text)
        return taken

    def expect(self, symbol: str) -> None:
        """Take *symbol* and nothing else."""
        if self.next != symbol:
            raise SelectorError(f"found '{self.next}', expected: '{symbol}'")
        self.take()

    def identifier(self) -> str:
        """Take a key or a value; ``in`` and ``notin`` may be either."""
        if not self.next or self.next in _SYMBOLS:
            raise SelectorError(f"found '{self.next}', expected: identifier")
        return self.take()


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.next == "!":
        tokens.take()
        return Requirement(_key(tokens), Operator.DOES_NOT_EXIST)
    key = _key(tokens)
    if tokens.next in ("", ","):
        return Requirement(key, Operator.EXISTS)
    symbol = tokens.take()
    if symbol in _SETS:
        return Requirement(key, _SETS[symbol], _value_set(tokens))
    if symbol not in _SINGLE:
        raise SelectorError(f"found '{symbol}', expected: in, notin, =, ==, !=, gt, lt")
    value = _valid_value("" if tokens.next in ("", ",") else tokens.identifier())
    operator = _SINGLE[symbol]
    if symbol in ("<", ">") and _integer(value) is None:
        raise SelectorError(f"{value!r}: for 'Gt', 'Lt' operators, the value must be an integer")
    return Requirement(key, operator, frozenset({value}))


def _key(tokens: _Tokens) -> str:
    key = tokens.identifier()
    if not _KEY.fullmatch(key):
        raise SelectorError(f"{key!r} is not a label key")
    return key


def _value_set(tokens: _Tokens) -> frozenset[str]:
    """Read ``(a, b)``; between commas and parentheses nothing is the empty value."""
    tokens.expect("(")
    values = {_set_value(tokens)}
    while tokens.next == ",":
        tokens.take()
        values.add(_set_value(tokens))
    tokens.expect(")")
    return frozenset(values)


def _set_value(tokens: _Tokens) -> str:
    return _valid_value("" if tokens.next in (",", ")") else tokens.identifier())


def _valid_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise SelectorError(f"{value!r} is not a label value")
    return value


# --- fields ---------------------------------------------------------------------------------

_TERM = re.compile(r"((?:\\.|[^,\\])*)(?:,|$)", re.DOTALL)
_COMPARISON = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)
_ESCAPED_VALUE = re.compile(r"(?:\\[\\,=]|[^\\,=])*", re.DOTALL)


def name_selector(name: str) -> str:
    """Write the field selector of one name (``fields.EscapeValue``)."""
    for special in "\\,=":
        name = name.replace(special, f"\\{special}")
    return f"metadata.name={name}"


def parse_field_selector(text: str) -> FieldSelector:
    """Read a ``fieldSelector`` parameter; "" selects everything. Raises SelectorError."""
    terms = []
    at = 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise SelectorError(f"invalid field selector: {text!r}")
        if found[1]:
            terms.append(_field_term(found[1]))
        at = found.end()
    return FieldSelector(tuple(terms))


def _field_term(text: str) -> FieldTerm:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise SelectorError(f"invalid selector: '{text}'; can't understand '{text}'")
    if not _ESCAPED_VALUE.fullmatch(found["value"]):
        raise SelectorError(f"invalid field selector: {found['value']!r}")
    value = re.sub(r"\\(.)", r"\1", found["value"])
    return FieldTerm(found["field"], value, found["operator"] == "!=")
