"""The kinds of judges by name: `chexprompt:MODEL`, `green:MODEL`, `grade:MODEL`, `grade-against:MODEL`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.errors import UnknownName, nearest
from cxrlab.core.protocols import TextModel
from cxrlab.core.tables import Table
from cxrlab.metrics.tally import Metric

if TYPE_CHECKING:
    from cxrlab.metrics.judging.base import Judge

# Each row is a `Judge` of metrics/judging/base.py.
JUDGES = Table(
    "kind of judge",
    {
        "chexprompt": "cxrlab.metrics.judging.chexprompt:ChexPrompt",
        "green": "cxrlab.metrics.judging.green:GreenJudge",
        "grade": "cxrlab.metrics.judging.grading:Grade",
        "grade-against": "cxrlab.metrics.judging.grading:GradeAgainst",
    },
)
_RULES = "rules"  # `green:rules`: the same formula, counted without a model


def split_judge(name: str) -> tuple[str, str] | None:
    """Kind and model of a judge, or of one of its metrics; None for what is no judge.

    >>> split_judge("chexprompt:http://127.0.0.1:8000/v1#m")
    ('chexprompt', 'http://127.0.0.1:8000/v1#m')
    >>> split_judge("green.matched:hf:judges/small")
    ('green', 'hf:judges/small')
    >>> split_judge("green:rules") is None
    True
    """
    head, _, model = name.strip().partition(":")
    kind = head.partition(".")[0]
    pattern = ":" not in model and any(sign in model for sign in "*?[")
    if kind not in JUDGES or not model.strip() or model.startswith(_RULES) or pattern:
        return None
    return kind, model.strip()


def judge_family(name: str, model: TextModel, *, prompt: Path | None = None, max_tokens: int | None = None) -> Judge:
    """The family of metrics of a judge.

    Args:
        name: Such as `chexprompt:http://127.0.0.1:8000/v1#m`; what stands after the kind is what the metrics call the
            model.
        model: What is asked.
        prompt: A YAML file with another wording; the built-in when None.
        max_tokens: Longest answer; the judge's own when None.
    """
    from cxrlab.metrics.judging.prompts import load_prompt

    kind, called = _known(name)
    judge: type[Judge] = JUDGES.load(kind)
    return judge(model, called, load_prompt(judge.wording, judge.places, prompt), max_tokens)


def judge_cards(name: str, *, prompt: Path | None = None) -> Sequence[Metric]:
    """The cards of a judge's metrics; no model is needed.

    Args:
        name: As for `judge_family`.
        prompt: As for `judge_family`.
    """
    from cxrlab.metrics.judging.prompts import load_prompt

    kind, called = _known(name)
    judge: type[Judge] = JUDGES.load(kind)
    return judge.cards(called, load_prompt(judge.wording, judge.places, prompt))


def _known(name: str) -> tuple[str, str]:
    found = split_judge(name)
    if found is None:
        raise UnknownName(
            f"'{name}' is no judge.{nearest(name.partition(':')[0], JUDGES)} Write KIND:MODEL with one of "
            f"{', '.join(JUDGES)}, such as chexprompt:http://127.0.0.1:8000/v1#MODEL."
        )
    return found
