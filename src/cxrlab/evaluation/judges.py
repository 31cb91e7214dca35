"""Judges by language models among the metrics: `chexprompt:MODEL`, `green:MODEL`, `grade:MODEL`, `grade-against:MODEL`.

A judge is named together with its model. A model is opened once, however many judges stand on it, and asked about the
candidates alone: floors would have it asked five times more. An answer that cannot be read leaves its pair without a
value; how many there were, and why, is told beside the scores.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cxrlab.core.asking import Asking
from cxrlab.core.egress import Shown, check_one_keeper
from cxrlab.core.errors import ConfigError, UnknownName, nearest
from cxrlab.core.protocols import Generated, TextModel
from cxrlab.evaluation.open_models import open_text_model
from cxrlab.metrics.judging.parsing.results import Reading
from cxrlab.metrics.judging.table import JUDGES, PAIRWISE, JudgeSettings, judge_cards, judge_family, split_judge
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Tally
from cxrlab.models.text_model_cache import CachedTextModel, purse

if TYPE_CHECKING:
    from cxrlab.metrics.judging.judges import Judge

Evidence = Mapping[str, Any]
EXAMPLE = "http://127.0.0.1:8000/v1#MODEL"  # what a judge may stand on
_REASONS = 3  # that a line for a terminal names


class TextModels:
    """Text models by name, each opened when it is first wanted and once; use it in a `with` block.

    Args:
        asking: Cache, limit and connection.
        shown: What their prompts will hold; patients' data leave this machine only with leave.
        folder: Run folder, in which requests and answers are kept; None keeps them in memory.
    """

    def __init__(self, asking: Asking, shown: Iterable[Shown] = (), folder: Path | None = None) -> None:
        self._asking, self._shown, self._folder = asking, tuple(shown), folder
        self._budget = purse(asking)  # one for all: the limit is that of the run
        self._open: dict[str, CachedTextModel] = {}

    def __call__(self, name: str) -> CachedTextModel:
        """The model of this name; egress is checked before anything connects."""
        if name not in self._open:
            check_one_keeper((*self._open, name), self._asking.connection.key_variable)
            model = open_text_model(name, self._asking, self._shown, self._folder, budget=self._budget)
            model.recall()  # before another model spends what this one has spent already
            self._open[name] = model
        return self._open[name]

    def close(self) -> None:
        """Close the files of every model."""
        with contextlib.ExitStack() as files:  # closes every one, also when one of them fails
            for model in self._open.values():
                files.callback(model.close)

    def __enter__(self) -> TextModels:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class UnopenedModel:
    """A text model that is named and never asked: enough to find out whether a judge exists.

    Args:
        name: Of the model.
    """

    name: str

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """Nothing is answered."""
        raise NotImplementedError(f"'{self.name}' was not opened")


@dataclass(frozen=True)
class OpenJudge:
    """One judge whose model is open.

    Args:
        name: `KIND:MODEL`.
        kind: A row of the table of judges.
        family: Asks its model.
        metrics: Those of its metrics that are wanted, in the order of their cards.
    """

    name: str
    kind: str
    family: Judge
    metrics: tuple[str, ...]

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a wanted metric."""
        return [tally for tally in self.family.tallies(batch) if tally.metric.name in self.metrics]


def judge_parts(name: str) -> tuple[str, str] | None:
    """Kind and model of a judge or of one of its metrics; None for anything else, such as `green:rule`, ill-written."""
    found = split_judge(name)
    return found if found is not None and ":" in found[1] else None


def parted(wanted: Sequence[str] | None) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Names, patterns and groups of metrics without the judges among them; and the judges.

    Args:
        wanted: As a user types them; None for the default metrics, which hold no judge.
    """
    if wanted is None:
        return None, ()
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if compares := next((name for name in names if name.partition(":")[0] == PAIRWISE), None):
        raise UnknownName(
            f"'{compares}' compares two reports and gives no value to one; it is asked by "
            f"'cxrlab prefer judge --judge {PAIRWISE}:MODEL'. Judges that give one: {', '.join(JUDGES)}."
        )
    judges = tuple(name for name in names if judge_parts(name) is not None)
    if with_comma := next((name for name in judges if "," in name), None):
        raise ConfigError(f"the judge '{with_comma}' has a comma in its name, which parts names; rename its model.")
    return tuple(name for name in names if name not in judges), judges


def build_judges(
    names: Iterable[str], models: Callable[[str], TextModel], judging: JudgeSettings | None = None
) -> tuple[OpenJudge, ...]:
    """The judges that these names ask for; two names of one judge are one.

    `chexprompt:MODEL` asks for everything that this judge counts, `chexprompt.significant:MODEL` for that alone: the
    answers are the same.

    Args:
        names: Judges, or single metrics of theirs.
        models: Opens their models.
        judging: Wordings and longest answers; the usual ones when None.
    """
    judging = judging or JudgeSettings()
    found: dict[str, OpenJudge] = {}
    for name in names:
        parts = judge_parts(name)
        assert parts is not None, name  # `parted` sees to it
        kind, model = parts
        judge = f"{kind}:{model}"
        prompt = judging.prompt(kind)
        known = [card.name for card in judge_cards(judge, prompt=prompt)]
        if name not in known:  # told before weights are loaded
            raise UnknownName(f"there is no metric '{name}'.{nearest(name, known, most=1)} Name the judge: {judge}.")
        before = found[judge].metrics if judge in found else ()
        if judge in found:
            family = found[judge].family
        else:
            family = judge_family(judge, models(model), prompt=prompt, max_tokens=judging.max_tokens)
        wanted = tuple(card for card in known if name == judge or card == name or card in before)
        found[judge] = OpenJudge(judge, kind, family, wanted)
    return tuple(found.values())


@contextlib.contextmanager
def open_judges(
    names: Iterable[str],
    asking: Asking,
    shown: Iterable[Shown] = (),
    folder: Path | None = None,
    judging: JudgeSettings | None = None,
) -> Iterator[tuple[OpenJudge, ...]]:
    """The judges of these names, their files closed at the end of the block; see `TextModels` and `build_judges`."""
    with TextModels(asking, shown, folder) as models:
        yield build_judges(names, models, judging)


def judge_evidence(judges: Sequence[OpenJudge], batch: Batch) -> dict[str, list[Evidence]]:
    """Judge → what it said of each pair, and whether that could be read."""
    return {judge.name: list(judge.family.evidence(batch)) for judge in judges}


def by_pair(evidence: Mapping[str, Sequence[Evidence]], place: int) -> dict[str, Evidence]:
    """What every judge said of one pair, whose id whoever asks knows."""
    return {name: {key: told for key, told in said[place].items() if key != "id"} for name, said in evidence.items()}


def answer_counts(evidence: Mapping[str, Sequence[Evidence]]) -> dict[str, dict[str, Any]]:
    """Judge → how many of its answers could be read, in whole or in part, and why the others could not."""
    return {name: _counted(said) for name, said in evidence.items()}


def _counted(said: Sequence[Evidence]) -> dict[str, Any]:
    statuses = Counter(Reading(one["status"]) for one in said)
    reasons = Counter(str(one["reason"]) for one in said if one["status"] in (Reading.PARTIAL, Reading.FAILED))
    told = {status.value: statuses[status] for status in Reading}
    return {"asked": len(said) - statuses[Reading.NOT_ASKED], **told, "reasons": dict(reasons.most_common())}


def answer_lines(judges: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for every judge whose answers could not all be read, for a terminal.

    Args:
        judges: From `answer_counts`.
    """
    for name, told in judges.items():
        asked, failed, partial = (told[key] for key in ("asked", Reading.FAILED.value, Reading.PARTIAL.value))
        if not failed and not partial:
            continue
        few = list(told["reasons"].items())[:_REASONS]
        why = "; ".join(f"{count:,} × {reason}" for reason, count in few)
        more = ", …" if len(told["reasons"]) > _REASONS else ""
        if failed == asked:
            yield f"{name}: NONE of its {asked:,} answers could be read, so that it has no value at all ({why}{more})"
            continue
        parts = [f"{failed:,} of {asked:,} answers could not be read and have no value"] if failed else []
        parts += [f"{partial:,} could be read in part"] if partial else []
        yield f"{name}: {', '.join(parts)} ({why}{more})"
