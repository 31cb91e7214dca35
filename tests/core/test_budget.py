"""What answers cost: counted, guessed where nobody counts, and stopped before the limit."""

from __future__ import annotations

import pytest

from cxrlab.core.llm_requests import PROMPT_TOKENS, Budget, BudgetSpent, count_tokens, estimate_tokens
from cxrlab.core.model_interfaces import Generated


def test_a_budget_stops_before_spending() -> None:
    """2 of 3 are spent; the next may cost 1 and is allowed, one of 1.001 is not."""
    budget = Budget(limit=3.0, price_prompt=1.0, price_answer=1.0)
    budget.add(1000, 1000)
    budget.require(500, 500)
    with pytest.raises(BudgetSpent, match="2.0000 of the max-cost 3 are spent"):
        budget.require(501, 500)
    assert budget.spent == 2.0


def test_without_a_limit_everything_is_allowed() -> None:
    Budget(price_answer=1.0).require(10**9, 10**9)


def test_tokens_are_the_models_own() -> None:
    assert count_tokens("eight ch", Generated("four", tokens=7, extra={PROMPT_TOKENS: 3})) == (3, 7)


@pytest.mark.parametrize("count", [-5, True, 2.5, "7", None])
def test_a_count_that_is_none_is_guessed(count: object) -> None:
    """A negative count would pay money back. Four characters to a token: 8 and 5 characters are 2 and 2."""
    answer = Generated("fives", tokens=count, extra={PROMPT_TOKENS: count})  # type: ignore[arg-type]
    assert count_tokens("p" * 8, answer) == (2, 2)
    assert estimate_tokens("") == 0
