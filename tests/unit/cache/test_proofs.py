"""When an informer was current, by what was learnt and reached."""

from __future__ import annotations

from math import inf

import pytest

from proxy.cache.proofs import MAX_MARKS, Proofs

Steps = list[tuple[str, int, float]]
"""``learn`` a version at a moment, or ``tell`` that one is held; the version held starts at 10."""


def play(steps: Steps) -> Proofs:
    proofs = Proofs(0.0)
    held = 10
    for what, version, moment in steps:
        if what == "learn":
            proofs.learn(version, moment, held)
        else:
            held = max(held, version)
            proofs.tell(held, moment)
    return proofs


@pytest.mark.parametrize(
    ("steps", "proven", "told"),
    [
        ([], -inf, 0.0),
        ([("tell", 11, 5.0)], -inf, 5.0),
        # What is held already was current when the probe was sent.
        ([("learn", 10, 3.0)], 3.0, 0.0),
        ([("learn", 9, 3.0)], 3.0, 0.0),
        ([("learn", 10, 3.0), ("learn", 10, 2.0)], 3.0, 0.0),
        # What isn't will be, once it's reached.
        ([("learn", 12, 3.0)], -inf, 0.0),
        ([("learn", 12, 3.0), ("tell", 12, 4.0)], 3.0, 4.0),
        ([("learn", 12, 3.0), ("tell", 20, 4.0)], 3.0, 4.0),
        ([("learn", 12, 3.0), ("learn", 14, 3.5), ("tell", 13, 4.0)], 3.0, 3.5),
        ([("learn", 12, 3.0), ("learn", 14, 3.5), ("tell", 14, 4.0)], 3.5, 4.0),
        # Who is known to be behind isn't current, however lively the watch.
        ([("learn", 12, 3.0), ("tell", 11, 9.0)], -inf, 3.0),
        ([("tell", 11, 2.0), ("learn", 15, 3.0), ("tell", 12, 9.0)], -inf, 3.0),
        ([("tell", 11, 5.0), ("learn", 15, 3.0), ("tell", 12, 9.0)], -inf, 5.0),
        # Answers may overtake each other.
        ([("learn", 14, 3.5), ("learn", 12, 3.0), ("tell", 13, 4.0)], -inf, 3.5),
    ],
)
def test_moments(steps: Steps, proven: float, told: float) -> None:
    proofs = play(steps)
    assert (proofs.proven, proofs.told, proofs.last) == (proven, told, max(proven, told))


def test_of_many_marks_the_first_says_since_when_it_is_behind() -> None:
    proofs = play([("learn", 11 + n, 1.0 + n) for n in range(MAX_MARKS + 5)])
    proofs.tell(10, 1e6)
    assert proofs.told == 1.0
    proofs.tell(10**6, 1e6)
    assert (proofs.proven, proofs.told) == (float(MAX_MARKS), 1e6)


def test_other_versions_leave_no_proof() -> None:
    proofs = play([("learn", 10, 3.0), ("learn", 50, 4.0), ("tell", 11, 5.0)])
    proofs.forget()
    proofs.tell(1, 6.0)  # nothing is awaited any more
    assert (proofs.proven, proofs.told) == (-inf, 6.0)
