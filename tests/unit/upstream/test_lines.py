"""Lines out of chunks."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.lines import LineFramer


@given(st.lists(st.binary(max_size=6).map(lambda part: part.replace(b"a", b"\n"))))
def test_any_chunks_give_the_lines_of_their_whole(chunks: list[bytes]) -> None:
    framer = LineFramer()
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    *whole, rest = b"".join(chunks).split(b"\n")
    assert lines == whole
    assert framer.is_empty is (not rest)
