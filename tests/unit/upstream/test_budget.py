"""A budget of bytes: what is taken, refused, and given back."""

from __future__ import annotations

from contextlib import suppress

from proxy.upstream.budget import Budget


def test_shares_are_taken_up_to_the_size() -> None:
    budget = Budget(10)
    with budget.share() as one, budget.share() as other:
        assert one.take(4)
        assert other.take(5)
        assert not one.take(2)
        assert other.take(1)
        assert (budget.held, budget.refusals) == (10, 1)


def test_what_is_left_behind_is_given_back() -> None:
    budget = Budget(10)
    with budget.share() as one:
        with suppress(ZeroDivisionError), budget.share() as other:
            assert one.take(4)
            assert other.take(6)
            raise ZeroDivisionError
        assert budget.held == 4
        assert one.take(6)
    assert budget.held == 0


def test_a_share_is_given_back_once() -> None:
    budget = Budget(10)
    with budget.share() as one, budget.share() as other:
        assert one.take(4)
        assert other.take(4)
        one.give_back()
        one.give_back()
        assert budget.held == 4
        assert one.take(6)
    assert budget.held == 0
