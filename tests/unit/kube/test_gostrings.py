"""Go's quoting of strings, as strconv's own tests have it."""

from __future__ import annotations

import pytest

from proxy.kube.gostrings import quote

CASES = [
    ("", '""'),
    ("name.with-all_it:may", '"name.with-all_it:may"'),
    ("\a\b\f\r\n\t\v", r'"\a\b\f\r\n\t\v"'),
    ("\\", r'"\\"'),
    ('a"b', r'"a\"b"'),
    ("'", '"\'"'),
    ("\x01\x7f", r'"\x01\x7f"'),
    ("\x80\xad", r'"\u0080\u00ad"'),
    ("\u263a\xe9\ufffd", '"\u263a\xe9\ufffd"'),
    ("\xa0\u2028\ufeff", r'"\u00a0\u2028\ufeff"'),
    ("\U0001f600\U0010ffff", '"\U0001f600' + r'\U0010ffff"'),
]


@pytest.mark.parametrize(("text", "quoted"), CASES)
def test_quote(text: str, quoted: str) -> None:
    assert quote(text) == quoted
