"""Kept answers: found again, priced, and never mixed up."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.protocols import Generated
from cxrlab.data.structuring.answers import Answers, Kept, guessed_tokens, key_of
from cxrlab.data.structuring.budget import Budget, BudgetSpent


def test_an_answer_is_found_again_after_reopening(tmp_path: Path) -> None:
    key, other = key_of("m", "prompt one"), key_of("m", "prompt two")
    with Answers(tmp_path / "a.jsonl", Budget()) as answers:
        answers.add(key, "prompt one", Generated("größer", tokens=7, extra={"prompt_tokens": 3}))
        answers.add(other, "prompt two", Generated("zwei"))
        assert answers[key] == Kept("größer", 3, 7)
    budget = Budget(price_prompt=1.0, price_answer=2.0)
    with Answers(tmp_path / "a.jsonl", budget) as answers:
        assert (len(answers), key in answers, answers[other].text) == (2, True, "zwei")
        assert answers[other] == Kept("zwei", guessed_tokens("prompt two"), 1)
    assert budget.spent == (3 + 3) * 1.0 / 1000 + (7 + 1) * 2.0 / 1000


def test_a_key_depends_on_every_part_and_their_order() -> None:
    assert len({key_of("a", "b"), key_of("b", "a"), key_of("ab"), key_of("a", "b", 0)}) == 4


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    """A kill in the middle of a write costs one answer, and the next stands on a line of its own."""
    file = tmp_path / "a.jsonl"
    with Answers(file, Budget()) as answers:
        answers.add(key_of("one"), "p", Generated("one"))
    file.write_bytes(file.read_bytes() + b'{"key": "ab')
    with Answers(file, Budget()) as answers:
        answers.add(key_of("two"), "p", Generated("two"))
        assert [answers[key_of(name)].text for name in ("one", "two")] == ["one", "two"]


def test_two_runs_do_not_share_a_file_at_once(tmp_path: Path) -> None:
    with Answers(tmp_path / "a.jsonl", Budget()), pytest.raises(RunError, match="another run"):
        Answers(tmp_path / "a.jsonl", Budget())


@pytest.mark.parametrize("line", ['{"key": "zz", "text": "", "prompt_tokens": 1, "tokens": 1}', '{"key": "ab"}'])
def test_a_foreign_file_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1 is not a kept answer"):
        Answers(tmp_path / "a.jsonl", Budget())


def test_a_budget_stops_before_spending() -> None:
    """2 of 3 are spent; the next may cost 1 and is allowed, one of 1.001 is not."""
    budget = Budget(limit=3.0, price_prompt=1.0, price_answer=1.0)
    budget.book(1000, 1000)
    budget.allow(500, 500)
    with pytest.raises(BudgetSpent, match="2.0000 of --max-cost 3"):
        budget.allow(501, 500)


@pytest.mark.parametrize("count", [-5, True, 2.5, "7"])
def test_a_count_that_is_none_is_guessed_and_does_not_spoil_the_file(tmp_path: Path, count: object) -> None:
    """Such a line could never be read again, and a negative count would pay money back."""
    file = tmp_path / "a.jsonl"
    with Answers(file, Budget()) as answers:
        answers.add(key_of("one"), "p" * 8, Generated("half \ud800", tokens=count, extra={"prompt_tokens": count}))  # type: ignore[arg-type]
    with Answers(file, Budget()) as answers:
        assert answers[key_of("one")] == Kept("half ?", 2, 2)
