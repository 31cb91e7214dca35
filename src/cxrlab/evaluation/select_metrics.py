"""Select metrics by name: those ready to use, those that need files of the user, and judges by language models."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from cxrlab.core.egress import EgressData
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.headline_metrics import is_error_count
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.model_interfaces import TextModel
from cxrlab.evaluation.config import MetricResources
from cxrlab.evaluation.load_model import TextModels
from cxrlab.metrics.base import Family, Metric, Tally, cards, default_names, metric_names
from cxrlab.metrics.judging import JUDGES, PAIRWISE, JudgeSettings, judge_cards, judge_family, split_judge
from cxrlab.metrics.judging.answer_text import Reading
from cxrlab.metrics.report_pairs import Batch
from cxrlab.models.model_registry import TEXT_KINDS, how_to_name

if TYPE_CHECKING:
    from cxrlab.metrics.judging.judges import Judge

# Beginning of the names of metrics that need something → the flags that give it, with {0} before each.
REQUIREMENTS: Mapping[str, str] = MappingProxyType(
    {
        "chexbert": "{0}chexbert FILE and {0}bert FOLDER: the published checkpoint chexbert.pth, and the tokenizer of "
        "bert-base-uncased ('chexpert' is another metric: its labels come from the built-in rules)",
        "radgraph": "{0}graphs FILE: JSON with the RadGraph graphs of both reports, or radgraph-xl to have the "
        "installed radgraph package draw them",
        "bertscore": "{0}encoder FOLDER: a transformers encoder on this machine, such as distilroberta-base",
        "radcliq": "{0}graphs, {0}encoder, {0}chexbert and {0}bert, as it is made of RadGraph, BERTScore and CheXbert",
    }
)
# Well-known metrics that this program does not compute → why, and the nearest alternative.
UNSUPPORTED: Mapping[str, str] = MappingProxyType(
    {
        "meteor": "it is defined by a Java program that matches synonyms by WordNet. No metric here has its values; "
        "those that compare words are bleu4:coco, rougeL:coco and cider:coco",
        "spice": "it needs a parser of captions of everyday scenes. No metric here has its values",
        "bleurt": "it needs its own fine-tuned weights. No metric here has its values; bertscore needs an encoder",
        "ratescore": "it needs its own model of entities. No metric here has its values; radgraph compares entities",
        "crimson": "its published form asks a language model. crimson:rules is another metric: the same formula on "
        "errors counted by rule",
    }
)
_MODELS = re.compile(r"(chatgpt|gpt|claude|gemini|llama|mistral|qwen|deepseek)[-\d]|o\d(-|$)|[\w.-]+/[\w.-]+$", re.I)
_MOST_NAMES = 6  # conventions that a message names
_NO_COMMA = "(The name of a judge ends at a comma: that of its model can hold none.)"


@dataclass(frozen=True)
class MetricSelection:
    """Names of metrics: those that need only two texts, and those of extra families."""

    ready: tuple[str, ...]
    extra: tuple[str, ...]


def select_metrics(
    wanted: Sequence[str] | None, extra: Sequence[Family] = (), *, beside_judges: bool = False
) -> MetricSelection:
    """The metrics to score.

    Args:
        wanted: Names, patterns (`bleu*`), families (`coco`), "default" or "all"; the default ones when None. A name that
            matches nothing raises `UnknownName` with the nearest, or the missing flag.
        extra: Families that need something more; their default metrics are scored where none of theirs is named.
        beside_judges: Whether judges by language models were named too: they may be all that is scored, and an unknown
            name may be part of theirs.
    """
    found = match_names(wanted, extra, beside_judges=beside_judges)
    if not found.extra:
        found = replace(found, extra=tuple(card.name for family in extra for card in list_default_cards(family)))
    if not (found.ready or found.extra or beside_judges):
        raise ConfigError("no metric was chosen; 'cxrlab metrics ls' lists their names.")
    return found


def match_names(
    wanted: Sequence[str] | None, extra: Sequence[Family], *, beside_judges: bool = False
) -> MetricSelection:
    """The metrics of these names, for arguments see `select_metrics`; of the extra families only those that are named."""
    if isinstance(wanted, str):
        wanted = (wanted,)
    if wanted is None:
        return MetricSelection(default_names(), ())
    known = tuple(card.name for family in extra for card in family.metrics)
    ready: set[str] = set()
    named: set[str] = set()
    for item in wanted:
        mine = {name for name in known if fnmatchcase(name, item)}
        if (family_name := _plain(item)) in REQUIREMENTS:  # `chexbert` is what that family counts by default
            every = (card.name for family in extra for card in list_default_cards(family))
            mine |= {name for name in every if name.startswith(family_name)}
        named |= mine
        try:
            ready.update(metric_names([item]))
        except UnknownName as error:
            if not mine:
                raise _explain(item, error, known, beside_judges) from None
    return MetricSelection(metric_names(tuple(ready)), tuple(name for name in known if name in named))


def list_default_cards(family: Family) -> list[Metric]:
    """What a family counts by default: its own choice where it has one, else everything."""
    chosen = getattr(family, "default", None)
    return [card for card in family.metrics if chosen is None or card.name in chosen]


def list_gated_families() -> list[tuple[Family, str]]:
    """Every family that needs something, and the flags that give it; only its cards can be used."""
    from cxrlab.metrics.bertscore import BertScore
    from cxrlab.metrics.chexpert_labels import ChexpertLabels
    from cxrlab.metrics.radcliq import RadCliq
    from cxrlab.metrics.radgraph import RadGraphF1

    graphs, encoder, labeler = (_named(name) for name in ("GRAPHS", "ENCODER", "chexbert"))
    parts: Any = dict.fromkeys(("radgraph", "bertscore", "semb"), lambda batch: batch)
    return [
        (RadGraphF1(graphs), "--graphs"),
        (BertScore(encoder), "--encoder"),
        (ChexpertLabels(labeler, prefix="chexbert"), "--chexbert --bert"),
        (RadCliq(parts), "--graphs --encoder --chexbert --bert"),
    ]


def list_given_families(resources: MetricResources) -> list[Family]:
    """The gated families for which these graphs and weights suffice, for their cards only: nothing is loaded."""
    return [family for family, flags in list_gated_families() if not lacking_settings(flags, resources)]


def lacking_settings(flags: str, resources: MetricResources) -> list[str]:
    """The settings behind flags such as `--chexbert --bert` that are not given."""
    return [name for flag in flags.split() if getattr(resources, name := flag.removeprefix("--")) is None]


def _named(name: str) -> Any:
    """Stands for an encoder, graphs or a labeler of the user in the signatures of metrics that need it."""
    return SimpleNamespace(name=name)


def _explain(item: str, error: UnknownName, known: Sequence[str], beside_judges: bool) -> UnknownName:
    """The same error, or one that names the flags or the model that an existing metric needs."""
    if split_judge_name(item) is not None:
        return UnknownName(
            f"the judge '{item}' asks a language model, which 'cxrlab score', 'cxrlab metrics validate' and 'cxrlab "
            "prefer' alone do; leave it out here."
        )
    if (start := next((start for start in REQUIREMENTS if _plain(item).startswith(start)), None)) is not None:
        given = [name for name in known if name.startswith(start)]
        if given:  # the flags are there, so the name itself is wrong
            return UnknownName(
                f"there is no metric '{item}'.{did_you_mean(item, given)} '{start}*' counts all of them."
            )
    if (reason := explain_unknown_metric(item)) is not None:
        return UnknownName(reason)
    kind, colon, _ = item.partition(":")
    if colon and kind not in JUDGES and (near := did_you_mean(kind, [*JUDGES])):
        return UnknownName(f"there is neither a metric nor a judge '{item}'.{near} Judges: {', '.join(JUDGES)}.")
    for family, _ in list_gated_families():
        if card := next((card for card in family.metrics if fnmatchcase(card.name, item)), None):
            return UnknownName(f"the metric '{item}' needs {_requirements(card.name, '--')}.")
    return UnknownName(f"{error} {_NO_COMMA}") if beside_judges else error


def explain_unknown_metric(item: str, before: str = "--") -> str | None:
    """What a name that is no metric here needs or lacks; None where it is unknown. `before` precedes each flag."""
    head, colon, model = item.partition(":")
    kind, plain = head.partition(".")[0].lower(), _plain(item)
    if kind in JUDGES and not did_you_mean(
        model, [name.partition(":")[2] for name in cards() if name.startswith(f"{kind}:")]
    ):
        what = f"for '{model}' after '{kind}:' {how_to_name(model, TEXT_KINDS)}."
        if not model:
            what = (
                f"name both, as in {kind}:{EXAMPLE_MODEL} for a model behind an OpenAI-compatible address, or "
                f"{kind}:hf:FOLDER for weights on this machine."
            )
        green = " green:rules is another metric: the same formula on errors counted by rule."
        return f"the judge '{item}' needs a model; {what}{green if kind == 'green' else ''}"
    if (why := UNSUPPORTED.get(plain)) is not None:
        return f"'{item}' is not counted: {why}."
    if not colon and (needs := _requirements(plain.removeprefix("f1"), before)) is not None:
        return f"the metric '{item}' needs {needs}."
    found = [name for name in cards() if not colon and len(plain) > 2 and _plain(name).startswith(plain)]
    if len(found) > 1:
        more = ", …" if len(found) > _MOST_NAMES else ""
        return (
            f"'{item}' has several conventions, whose values differ: {', '.join(found[:_MOST_NAMES])}{more}. Name one, or "
            f"'{os.path.commonprefix(found)}*' for all of them; 'cxrlab metrics ls --metrics NAME' explains each."
        )
    if not found and _MODELS.match(item):
        return (
            f"'{item}' is a model and not a metric: as a judge it is named with what it counts, such as "
            f"chexprompt:MODEL; for MODEL {how_to_name(item, TEXT_KINDS)}."
        )
    return None


def _requirements(name: str, before: str) -> str | None:
    """What the metrics whose names begin like this need."""
    return next((needs.format(before) for start, needs in REQUIREMENTS.items() if name.startswith(start)), None)


def _plain(name: str) -> str:
    """`BLEU-4` as `bleu4`."""
    return re.sub(r"[\W_]+", "", name.lower())


def build_extra_families(extras: MetricResources) -> list[Family]:
    """The families for these resources; RadCliQ when all three are there."""
    found: list[Family] = []
    radgraph = bert = chexbert = None
    if extras.graphs is not None:
        from cxrlab.metrics.radgraph import RadGraphF1, graph_source

        radgraph = RadGraphF1(graph_source(extras.graphs))
        found.append(radgraph)
    if extras.encoder is not None:
        from cxrlab.metrics.bertscore import DISTILROBERTA_5, BertScore
        from cxrlab.models.text_encoders import LocalTokenEncoder

        encoder = LocalTokenEncoder(extras.encoder, extras.layer)
        bert = BertScore(encoder, baseline=DISTILROBERTA_5)
        found.append(BertScore(encoder))
    if extras.chexbert is not None and extras.bert is not None:
        from cxrlab.metrics.chexpert_labels import ChexpertLabels
        from cxrlab.models.text_encoders import CheXbert

        chexbert = CheXbert(extras.chexbert, extras.bert)
        found.append(ChexpertLabels(chexbert, prefix="chexbert"))
    if radgraph and bert and chexbert:
        from cxrlab.metrics.radcliq import RadCliq, semb

        names = {"radgraph": radgraph.source.name, "bertscore": bert.encoder.name, "semb": chexbert.name}
        found.append(RadCliq({"radgraph": radgraph.combined, "bertscore": bert.f1, "semb": semb(chexbert)}, names))
    return found


NEEDS_MODEL = "a language model in the place of MODEL"


def describe_metrics(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One row per metric, in table order; those that need something more follow with what they need.

    Without names, patterns, families or judges: every ready metric, and those that the others count by default.
    """
    known, on, needy = cards(), set(default_names()), list_gated_families()
    by_kind = {kind: judge_cards(f"{kind}:MODEL") for kind in JUDGES}
    if names is None:
        judged = [card for found in by_kind.values() for card in found if not is_error_count(card.name)]
    else:
        of_judges: dict[str, list[str]] = {name: [] for name in names}
        for name in names:
            parts = split_judge_name(name)
            for kind, found in by_kind.items():
                whole = name == kind or (parts is not None and parts[0] == kind)
                of_judges[name] += [card.name for card in found if whole or fnmatchcase(card.name, name)]
        wanted = {card for found in of_judges.values() for card in found}
        judged = [card for found in by_kind.values() for card in found if card.name in wanted]
        names = [name for name, found in of_judges.items() if not found]
    if names is None:
        ready = tuple(known)
        more = {card.name for family, _ in needy for card in list_default_cards(family)}
    else:
        chosen = match_names(names, [family for family, _ in needy])
        ready, more = chosen.ready, set(chosen.extra)
    rows = [_row(known[name], name in on, "") for name in ready]
    rows += [_row(card, False, needs) for family, needs in needy for card in family.metrics if card.name in more]
    return rows + [_row(card, False, NEEDS_MODEL) for card in judged]


def _row(card: Metric, default: bool, needs: str) -> dict[str, Any]:
    return {
        "name": card.name,
        "direction": card.direction,
        "range": [None if math.isinf(bound) else bound for bound in card.range],
        "identity": card.identity,
        "default": default,
        "needs": needs,
        "about": card.about,
        "undefined": card.undefined,
        "quirk": card.quirk,
        "by_pair": card.by_pair,
        "signature": card.signature,
    }


Evidence = Mapping[str, Any]
EXAMPLE_MODEL = "http://127.0.0.1:8000/v1#MODEL"
_REASONS = 3  # that a line for a terminal names


@dataclass(frozen=True)
class OpenJudge:
    """One judge `KIND:MODEL` with an open model, and the wanted ones of its metrics in the order of their cards."""

    name: str
    kind: str
    family: Judge
    metrics: tuple[str, ...]

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per wanted metric."""
        return [tally for tally in self.family.tallies(batch) if tally.metric.name in self.metrics]


def split_judge_name(name: str) -> tuple[str, str] | None:
    """Kind and model of a judge or of one of its metrics; None for anything else, such as the misspelt `green:rule`."""
    found = split_judge(name)
    return found if found is not None and ":" in found[1] else None


def separate_judges(wanted: Sequence[str] | None) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Names, patterns and groups of metrics without judges, and the judges; None for the default metrics."""
    if wanted is None:
        return None, ()
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if compares := next((name for name in names if name.partition(":")[0] == PAIRWISE), None):
        raise UnknownName(
            f"'{compares}' compares two reports and gives no score per report; use "
            f"'cxrlab prefer judge --judge {PAIRWISE}:MODEL'. Judges that give one: {', '.join(JUDGES)}."
        )
    judges = tuple(name for name in names if split_judge_name(name) is not None)
    if with_comma := next((name for name in judges if "," in name), None):
        raise ConfigError(f"the judge '{with_comma}' has a comma in its name, which separates names; rename its model.")
    return tuple(name for name in names if name not in judges), judges


def build_judges(
    names: Iterable[str], models: Callable[[str], TextModel], judging: JudgeSettings | None = None
) -> tuple[OpenJudge, ...]:
    """The judges of these names, each once.

    `chexprompt:MODEL` is everything that this judge counts, `chexprompt.significant:MODEL` only that metric: the answers
    are the same. `models` opens a model by name.
    """
    judging = judging or JudgeSettings()
    found: dict[str, OpenJudge] = {}
    for name in names:
        parts = split_judge_name(name)
        assert parts is not None, name  # see `separate_judges`
        kind, model = parts
        judge = f"{kind}:{model}"
        prompt = judging.prompt(kind)
        known = [card.name for card in judge_cards(judge, prompt=prompt)]
        if name not in known:  # raised before weights are loaded
            raise UnknownName(
                f"there is no metric '{name}'.{did_you_mean(name, known, most=1)} Name the judge: {judge}."
            )
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
    llm: LLMConfig,
    data: Iterable[EgressData] = (),
    folder: Path | None = None,
    judging: JudgeSettings | None = None,
) -> Iterator[tuple[OpenJudge, ...]]:
    """The judges of these names, their files closed at the end of the block; see `TextModels` and `build_judges`."""
    with TextModels(llm, data, folder) as models:
        yield build_judges(names, models, judging)


def collect_evidence(judges: Sequence[OpenJudge], batch: Batch) -> dict[str, list[Evidence]]:
    """Judge → its answer on each pair, and whether that could be read."""
    return {judge.name: list(judge.family.evidence(batch)) for judge in judges}


def evidence_for_pair(evidence: Mapping[str, Sequence[Evidence]], place: int) -> dict[str, Evidence]:
    """Every judge's answer on one pair, without its id."""
    return {name: {key: x for key, x in answers[place].items() if key != "id"} for name, answers in evidence.items()}


def count_answers(evidence: Mapping[str, Sequence[Evidence]]) -> dict[str, dict[str, Any]]:
    """Judge → how many of its answers could be read, in whole or in part, and why the others could not."""
    counts = {}
    for name, answers in evidence.items():
        statuses = Counter(Reading(one["status"]) for one in answers)
        reasons = Counter(str(one["reason"]) for one in answers if one["status"] in (Reading.PARTIAL, Reading.FAILED))
        counts[name] = {
            "asked": len(answers) - statuses[Reading.NOT_ASKED],
            **{status.value: statuses[status] for status in Reading},
            "reasons": dict(reasons.most_common()),
        }
    return counts


def format_unreadable_answers(judges: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for every judge whose answers could not all be read, for a terminal, from `count_answers`."""
    for name, counts in judges.items():
        asked, failed, partial = (counts[key] for key in ("asked", Reading.FAILED.value, Reading.PARTIAL.value))
        if not failed and not partial:
            continue
        few = list(counts["reasons"].items())[:_REASONS]
        why = "; ".join(f"{count:,} × {reason}" for reason, count in few)
        more = ", …" if len(counts["reasons"]) > _REASONS else ""
        if failed == asked:
            yield f"{name}: NONE of its {asked:,} answers could be read, so it has no value ({why}{more})"
            continue
        parts = [f"{failed:,} of {asked:,} answers could not be read and have no value"] if failed else []
        parts += [f"{partial:,} could be read in part"] if partial else []
        yield f"{name}: {', '.join(parts)} ({why}{more})"
