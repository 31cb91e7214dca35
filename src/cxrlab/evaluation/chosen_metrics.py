"""Which metrics a user means: among those that are ready, and those that need something of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cxrlab.core.errors import UnknownName, nearest
from cxrlab.evaluation.judges import EXAMPLE, judge_parts
from cxrlab.metrics.families import cards, default_names, metric_names
from cxrlab.metrics.judging.table import JUDGES
from cxrlab.metrics.tally import Family, Metric

_NO_COMMA = "(The name of a judge ends at a comma: that of its model can hold none.)"


@dataclass(frozen=True)
class Chosen:
    """Names of metrics.

    Args:
        ready: Those that two texts are enough for, in table order.
        extra: Those of the families beside them, in their order; empty when none was asked for by name.
    """

    ready: tuple[str, ...]
    extra: tuple[str, ...]


def chosen_metrics(
    wanted: Sequence[str] | None, extra: Sequence[Family] = (), *, beside_judges: bool = False
) -> Chosen:
    """The metrics that are meant.

    Args:
        wanted: Names, patterns (`bleu*`), families (`coco`), "default" or "all"; the default ones when None. What
            matches nothing is an `UnknownName` that tells the nearest, or the flag that is missing.
        extra: Families that need something more.
        beside_judges: Whether judges by language models were named too, so that a strange name may be half of theirs.
    """
    if isinstance(wanted, str):
        wanted = (wanted,)
    if wanted is None:
        return Chosen(default_names(), ())
    known = tuple(card.name for family in extra for card in family.metrics)
    ready: set[str] = set()
    asked: set[str] = set()
    for item in wanted:
        mine = {name for name in known if fnmatchcase(name, item)}
        asked |= mine
        try:
            ready.update(metric_names([item]))
        except UnknownName as error:
            if not mine:
                raise _with_flag(item, error, beside_judges) from None
    return Chosen(metric_names(tuple(ready)), tuple(name for name in known if name in asked))


def default_cards(family: Family) -> list[Metric]:
    """What a family counts when nobody asks for more: its own choice where it has one, else everything."""
    chosen = getattr(family, "default", None)
    return [card for card in family.metrics if chosen is None or card.name in chosen]


def with_needs() -> list[tuple[Family, str]]:
    """Every family that needs something, and the flags that give it; good for its cards alone."""
    from cxrlab.metrics.bertscore import BertScore
    from cxrlab.metrics.labels import ChexpertLabels
    from cxrlab.metrics.radcliq import RadCliq
    from cxrlab.metrics.radgraph import RadGraphF1

    graphs: Any = _Yours("GRAPHS")
    encoder: Any = _Yours("ENCODER")
    labeler: Any = _Yours("chexbert")
    parts: Any = dict.fromkeys(("radgraph", "bertscore", "semb"), lambda batch: batch)
    return [
        (RadGraphF1(graphs), "--graphs"),
        (BertScore(encoder), "--encoder"),
        (ChexpertLabels(labeler, prefix="chexbert"), "--chexbert --bert"),
        (RadCliq(parts), "--graphs --encoder --chexbert --bert"),
    ]


@dataclass(frozen=True)
class _Yours:
    """Stands for what the user has, in the signatures of metrics that need it."""

    name: str


def _with_flag(item: str, error: UnknownName, beside_judges: bool) -> UnknownName:
    """The same error, or one that names the flags or the model where the metric exists and only needs them."""
    if judge_parts(item) is not None:
        return UnknownName(
            f"the judge '{item}' asks a language model, which 'cxrlab score', 'cxrlab metrics validate' and 'cxrlab "
            "prefer judge' alone do; leave it out here."
        )
    kind, colon, _ = item.partition(":")
    if kind in JUDGES and not nearest(item, cards()):
        return UnknownName(f"the judge '{item}' needs a model; name both, as in {kind}:{EXAMPLE}.")
    if colon and kind not in JUDGES and (near := nearest(kind, [*JUDGES])):
        return UnknownName(f"there is neither a metric nor a judge '{item}'.{near} Judges: {', '.join(JUDGES)}.")
    for family, needs in with_needs():
        if any(fnmatchcase(card.name, item) for card in family.metrics):
            return UnknownName(f"the metric '{item}' needs {needs}; 'cxrlab score --help' says what to give there.")
    return UnknownName(f"{error} {_NO_COMMA}") if beside_judges else error
