"""Families of user agents: the product names of clients, as a bounded label."""

import re

MAX_FAMILIES = 32
"""Names that are told apart; clients choose theirs, and each is a series."""

MAX_LENGTH = 32

NONE, OTHER = "none", "other"

_INSANE = re.compile(r"[^a-z0-9._-]+")


def product_of(user_agent: str) -> str:
    """The product name of a User-Agent, in lower case: ``kubectl`` of ``kubectl/v1.37 (linux)``."""
    if not user_agent.strip():
        return NONE
    product = user_agent.partition("/")[0][: 2 * MAX_LENGTH].lower()
    return _INSANE.sub("-", product)[:MAX_LENGTH].strip("-") or OTHER


class Families:
    """Names the first ``MAX_FAMILIES`` products that ask; the rest is ``other``."""

    def __init__(self) -> None:
        self._known = {NONE, OTHER}

    def of(self, user_agent: str) -> str:
        """The family of a User-Agent; empty for a client that shows none."""
        product = product_of(user_agent)
        if product not in self._known:
            if len(self._known) >= MAX_FAMILIES + 2:
                return OTHER
            self._known.add(product)
        return product
