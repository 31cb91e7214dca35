"""The kinds of judges by name, such as `chexprompt:MODEL`, `green:MODEL` and `grade:MODEL`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.config import check_at_least
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.model_interfaces import TextModel
from cxrlab.core.registry import Registry
from cxrlab.metrics.base import Metric

if TYPE_CHECKING:
    from cxrlab.metrics.judging.judges import Judge

# Each row is a `Judge` of metrics/judging/judges.py.
JUDGES = Registry(
    "kind of judge",
    {
        "chexprompt": "cxrlab.metrics.judging.judges:ChexPrompt",
        "green": "cxrlab.metrics.judging.judges:GreenJudge",
        "green-published": "cxrlab.metrics.judging.judges:PublishedGreen",
        "grade": "cxrlab.metrics.judging.judges:Grade",
        "grade-against": "cxrlab.metrics.judging.judges:GradeAgainst",
    },
)
_RULES = "rules"  # `green:rules`: the same formula, counted without a model


def split_judge(name: str) -> tuple[str, str] | None:
    """Kind and model of a judge, or of one of its metrics such as `green.matched:hf:FOLDER`; None for anything else."""
    head, _, model = name.strip().partition(":")
    kind = head.partition(".")[0]
    pattern = ":" not in model and any(sign in model for sign in "*?[")
    if kind not in JUDGES or not model.strip() or model.startswith(_RULES) or pattern:
        return None
    return kind, model.strip()


def judge_family(name: str, model: TextModel, *, prompt: Path | None = None, max_tokens: int | None = None) -> Judge:
    """The family of metrics of a judge such as `chexprompt:http://127.0.0.1:8000/v1#m`.

    `prompt` is a YAML file with another wording; `max_tokens` the longest answer, the judge's own when None.
    """
    from cxrlab.metrics.judging.prompts import load_prompt

    kind, called = _split_known(name)
    judge: type[Judge] = JUDGES.load(kind)
    return judge(model, called, load_prompt(judge.wording, judge.places, prompt), max_tokens)


def judge_cards(name: str, *, prompt: Path | None = None) -> Sequence[Metric]:
    """The cards of a judge's metrics; no model is needed."""
    from cxrlab.metrics.judging.prompts import load_prompt

    kind, called = _split_known(name)
    judge: type[Judge] = JUDGES.load(kind)
    return judge.cards(called, load_prompt(judge.wording, judge.places, prompt))


def _split_known(name: str) -> tuple[str, str]:
    found = split_judge(name)
    if found is None:
        raise UnknownName(
            f"'{name}' is not a judge.{did_you_mean(name.partition(':')[0], JUDGES)} Write KIND:MODEL with one of "
            f"{', '.join(JUDGES)}, such as chexprompt:http://127.0.0.1:8000/v1#MODEL."
        )
    return found


PAIRWISE = "pairwise"
KINDS = (*JUDGES, PAIRWISE)


@dataclass(frozen=True)
class JudgeSettings:
    """Prompts of judges by language models, and the length of their answers.

    Args:
        prompts: Other prompts, each as KIND=FILE (chexprompt=wording.yaml); the built-in ones when left out.
        max_tokens: Longest answer, reasoning included; 1,024 for counts and 512 for grades and pairs when left out.
    """

    prompts: tuple[str, ...] = ()
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        check_at_least(self, max_tokens=1)
        kinds = [_parse_prompt(entry)[0] for entry in self.prompts]
        if twice := next((kind for kind in kinds if kinds.count(kind) > 1), None):
            raise ConfigError(f"prompts has two wordings for {twice}; give one.")

    def prompt(self, kind: str) -> Path | None:
        """The file with another wording for a kind of judge; None for the built-in."""
        return dict(map(_parse_prompt, self.prompts)).get(kind)


def _parse_prompt(entry: str) -> tuple[str, Path]:
    kind, equals, file = (part.strip() for part in entry.partition("="))
    if kind not in KINDS or not equals or not file:
        raise ConfigError(
            f"prompts has '{entry}'; write KIND=FILE, where KIND is one of {', '.join(KINDS)}.{did_you_mean(kind, KINDS)}"
        )
    return kind, Path(file)
