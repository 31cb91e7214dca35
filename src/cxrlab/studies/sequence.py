"""A sequence of commands from downloads to results: what is done, what is missing, which counts are not as expected.

The commands take days and several GPUs, and are started one by one; a study of this kind checks what is between them.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.config import config_from, parse_group, raise_problems
from cxrlab.core.errors import ConfigError, CxrlabError
from cxrlab.core.files import read_json
from cxrlab.core.registry import load_reference
from cxrlab.core.runs import state
from cxrlab.data.card import CARD, Card, read_card
from cxrlab.data.corpus_writer import PARTIAL
from cxrlab.studies.engine import SUMMARY, StudyRecipe
from cxrlab.training.samples import PairKind, pair_table, read_sources

# Command that trains → its settings.
_TRAININGS = {
    "train encoder": "cxrlab.training.config:EncoderConfig",
    "train align": "cxrlab.training.config:AlignConfig",
    "train finetune": "cxrlab.training.config:FinetuneConfig",
}


@dataclass(frozen=True)
class Step:
    """One command."""

    command: str  # as it is typed; --out names what it makes, a corpus or a run
    needs: tuple[Path, ...] = ()  # files and folders that must be there before it
    # What is counted on the card of the corpus that it makes (studies, patients, images, pairs) → number.
    expected: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)  # the paper's counts, shown beside ours

    def flag(self, name: str) -> Path:
        """The path that the command gives to a flag."""
        words = shlex.split(self.command)
        if name not in words[:-1]:
            raise ConfigError(f"the command '{self.command}' has no {name}; give it one.")
        return Path(words[words.index(name) + 1])

    @property
    def inputs(self) -> tuple[Path, ...]:
        """What must be there before it: its needs and its --config."""
        return (*self.needs, self.flag("--config")) if "--config" in shlex.split(self.command) else self.needs

    @property
    def training(self) -> str | None:
        """Reference of the settings of a command that trains; None for another one."""
        return next((cls for name, cls in _TRAININGS.items() if f" {name} " in self.command), None)


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """Commands in order.

    Args:
        steps: Name → command, needs, expected, paper.
    """

    steps: Mapping[str, Any]

    def __post_init__(self) -> None:
        for step in self.chosen().values():
            step.flag("--out")

    def chosen(self) -> dict[str, Step]:
        """The steps by name, every setting checked."""
        found: dict[str, Step] = {}
        problems: list[str] = []
        for name, values in self.steps.items():
            step, wrong = parse_group(Step, values, f"steps, '{name}'")
            problems += wrong
            if step is not None:
                found[name] = step
        raise_problems(problems)
        return found


class CommandSequence(StudyRecipe):
    """Reports the state of each command of a sequence: what it needs, and what it has made."""

    config: SequenceConfig
    config_class = SequenceConfig
    title = "Sequence"
    kinds = MappingProxyType({})

    def plan(self) -> None:
        """Nothing is run here."""

    def check(self) -> None:
        """Refuse to run."""
        raise ConfigError(
            "the steps of this study take days and are started one by one; --dry-run lists them with their state."
        )

    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """None."""
        return {}

    def status(self) -> list[dict[str, str]]:
        """Every step with its state: done, unfinished, ready, waiting, missing, differs or error."""
        steps = self.config.chosen()
        maker = {step.flag("--out"): name for name, step in steps.items()}
        rows = []
        for name, step in steps.items():
            try:
                found, about = _state(step, maker)
            except CxrlabError as error:  # one damaged file must not hide the other steps
                found, about = "error", str(error)
            rows.append({"what": name, "state": found, "name": about, "command": step.command})
        return rows


def _state(step: Step, maker: Mapping[Path, str]) -> tuple[str, str]:
    """The state of a step, and details of it."""
    out = step.flag("--out")
    if (out / CARD).is_file():
        counts = card_counts(read_card(out / CARD))
        about = ", ".join(f"{count:,} {name}{_paper(step, name)}" for name, count in counts.items())
        wrong = [name for name, number in step.expected.items() if counts.get(name) != number]
        expected = ", ".join(f"{step.expected[name]:,} {name}" for name in wrong)
        return ("differs", f"{about}; expected {expected}") if wrong else ("done", about)
    run = state(out)
    if run not in (None, "finished"):
        return "unfinished", f"{out} is {run}; run the command again"
    if (out / PARTIAL).is_file():
        return "unfinished", f"{out} is not complete; run the command again"
    if run is None:
        if lost := [path for path in step.inputs if path not in maker and not path.exists()]:
            return "missing", ", ".join(map(str, lost))
        if unmade := [path for path in step.needs if path in maker and not _is_made(path)]:
            return "waiting", "for " + ", ".join(maker[path] for path in unmade)
    done = "ready" if run is None else "done"
    return (done, "" if run is None else str(out)) if step.training is None else _compare_pairs(step, done)


def _is_made(out: Path) -> bool:
    return (out / CARD).is_file() or state(out) == "finished"


def _compare_pairs(step: Step, done: str) -> tuple[str, str]:
    """Compare the pairs of a training, to come or done, with the table of its composed corpus."""
    composed = composed_pairs(read_card(step.flag("--data") / CARD))
    if done == "done":
        learnt = read_json(step.flag("--out") / SUMMARY)["rows"]
        about = "" if learnt == composed.total() else f"{learnt:,}, composed {composed.total():,}"
    else:
        config = config_from(load_reference(str(step.training)), step.flag("--config"), [f"data={step.flag('--data')}"])
        rows = pair_table(read_sources(config)).rows
        counted = Counter({PairKind(row.corpus, row.text, row.view): row.pairs for row in rows})
        about = "; ".join(
            f"{' '.join(kind)}: {counted[kind]:,}, composed {composed[kind]:,}"
            for kind in sorted(counted | composed)
            if counted[kind] != composed[kind]
        )
    return ("differs", f"pairs: {about}") if about else (done, f"{composed.total():,} pairs{_paper(step, 'pairs')}")


def _paper(step: Step, name: str) -> str:
    return f" (paper {step.paper[name]:,})" if name in step.paper else ""


def card_counts(card: Card) -> dict[str, int]:
    """Studies, patients and images on a card; of a composition also its pairs."""
    pairs = composed_pairs(card).total()
    counts = {name: card.counts.get(name, 0) for name in ("studies", "patients", "images")}
    return counts | ({"pairs": pairs} if pairs else {})


def composed_pairs(card: Card) -> Counter[PairKind]:
    """Pairs of a composed corpus by member, source of the text and view, from the table on its card."""
    return Counter(
        {
            PairKind(row["member"], text, view): count
            for row in card.extra.get("table", [])
            for text, views in row.get("views", {}).items()
            for view, count in views.items()
        }
    )
