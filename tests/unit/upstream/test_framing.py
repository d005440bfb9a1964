"""Frames out of chunks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.framing import Framer, LengthFramer, LineFramer


@given(st.lists(st.binary(max_size=6).map(lambda part: part.replace(b"a", b"\n"))))
def test_any_chunks_give_the_lines_of_their_whole(chunks: list[bytes]) -> None:
    framer = LineFramer()
    lines = [line for chunk in chunks for line in framer.feed(chunk)]
    *whole, rest = b"".join(chunks).split(b"\n")
    assert lines == whole
    assert framer.is_empty is (not rest)


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(0, 400)), st.integers(0, 5))
def test_any_chunks_give_the_frames_of_their_whole(
    frames: list[bytes], cuts: list[int], missing: int
) -> None:
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    stream = stream[: max(len(stream) - missing, 0)]
    framer: Framer = LengthFramer()
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[start:end] for start, end in pairwise(places)]
    found = [frame for chunk in chunks for frame in framer.feed(chunk)]
    whole = sum(4 + len(frame) for frame in found)
    assert found == frames[: len(found)]
    assert framer.is_empty is (whole == len(stream))
    assert missing or found == frames


@pytest.mark.parametrize("size", range(1, 10))
def test_lengths_may_come_in_pieces(size: int) -> None:
    """Each frame comes with its last byte: what waits for the next one is an event too late."""
    frames = [b"", b"a", b"b" * 300, b"c\n"]
    for pair in pairwise(frames):
        framer = LengthFramer()
        stream = b"".join(len(frame).to_bytes(4) + frame for frame in pair)
        chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
        found = [(at, frame) for at, chunk in enumerate(chunks) for frame in framer.feed(chunk)]
        ends = (4 + len(pair[0]), len(stream))
        assert found == [((end - 1) // size, frame) for end, frame in zip(ends, pair, strict=True)]
        assert framer.is_empty
