"""At most so many answers an account and window."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.defence.base import Defence

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels


class Quota(Defence):
    """Answers the first Q queries of an account in each window.

    The clock counts queries, not seconds, so that an audit comes out alike on a fast and on a slow machine. Refused
    queries move the clock too.

    Args:
        answers: Q, at least 1.
        window: Queries, of all accounts together, after which every account may ask again; None for never.
    """

    name = "quota"
    refusal = "This account has used up its quota; please try again later."

    def __init__(self, answers: int, window: int | None = None) -> None:
        if answers < 1 or (window is not None and window < 1):
            raise ConfigError(f"a quota of {answers} answers in a window of {window} is not usable; give at least 1.")
        self.answers, self.window = answers, window
        self._given: Counter[tuple[str, int]] = Counter()

    def admits(self, asked: Pixels, account: str, number: int) -> bool:
        """Whether the account has an answer left in the window of this query; if so it is used."""
        place = (account, number // self.window if self.window else 0)
        if self._given[place] >= self.answers:
            return False
        self._given[place] += 1
        return True

    def count(self, account: str, number: int) -> None:
        """An earlier query takes its share as it did then."""
        place = (account, number // self.window if self.window else 0)
        self._given[place] = min(self.answers, self._given[place] + 1)


def benign_share_refused(images_per_window: float, answers: int) -> float:
    """Share of a benign account's requests that a quota refuses, 0 to 1.

    Args:
        images_per_window: How many images the account sends on average in one window, above 0. They come one by one
            and independently, so their number has the Poisson distribution.
        answers: The quota.
    """
    rate = images_per_window
    if not rate > 0 or answers < 0:
        raise ConfigError(f"images_per_window={rate} and answers={answers} are not usable; give numbers above 0.")
    # E[max(X - Q, 0)] = rate - E[min(X, Q)], and the latter is the sum of P(X >= k) for k = 1 … Q.
    answered = cumulative = 0.0
    for k in range(answers):
        cumulative += math.exp(k * math.log(rate) - rate - math.lgamma(k + 1))
        answered += max(0.0, 1.0 - cumulative)
    return min(1.0, max(0.0, (rate - answered) / rate))


def accounts_needed(queries: int, answers: int, window: int | None = None) -> int:
    """Accounts from which an attacker has every one of so many queries answered; with them a quota takes nothing."""
    return math.ceil(min(queries, window or queries) / answers)
