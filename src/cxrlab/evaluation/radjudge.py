"""RadJudge: small ranking cases, each a reference and candidates whose order is beyond dispute.

    cases.json   a list of {category, id, ground_truth, candidates: {C1: {text, context?}}, expected_ranking}

A ranking is `C1 > C2 = C3`, or a list of such. A metric passes a case when every relation holds:
`>` asks for a difference above the tie tolerance, `=` for one within it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.files import read_json
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.metric_choice import OpenJudge
from cxrlab.evaluation.report_files import parse_age, parse_report
from cxrlab.evaluation.validate import score_pairs
from cxrlab.metrics.pairs import Batch, Context, Pair

CASES = "cases.json"
_RELATION = re.compile(r"\s*(>|=|==|<)\s*")


@dataclass(frozen=True)
class Relation:
    """Two candidates of a case, the first better than the second or as good."""

    first: str
    second: str
    equal: bool

    def holds(self, values: Mapping[str, float], tie: float) -> bool:
        """Whether values (higher better) agree; an undefined one never does."""
        gap = values[self.first] - values[self.second]
        return abs(gap) <= tie if self.equal else gap > tie


@dataclass(frozen=True)
class Case:
    """One case: its pairs by candidate, and what must hold between them."""

    id: str
    category: str
    pairs: Mapping[str, Pair]
    relations: tuple[Relation, ...]


def read_radjudge(root: Path) -> list[Case]:
    """Read the cases; one that cannot be understood is a `DataError` that names it."""
    file = root / CASES
    found = read_json(file)
    if not isinstance(found, list) or not found:
        raise DataError(f"{file} must hold a list of cases; is {root} the folder of RadJudge?")
    cases = [_case(item, f"{file}, case {number}") for number, item in enumerate(found, 1)]
    ids = [case.id for case in cases]
    if len(set(ids)) < len(ids):
        raise DataError(f"{file} has two cases '{next(key for key in ids if ids.count(key) > 1)}'; ids must differ.")
    return cases


class RadJudgeBenchmark:
    """How many cases each metric ranks as expected.

    Args:
        config: Settings; the cases are read at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        assert config.root is not None  # the settings see to it
        self._tie, self._cases = config.tie, read_radjudge(config.root)
        self._places = [(case, key) for case in self._cases for key in case.pairs]
        self.batch = Batch([case.pairs[key] for case, key in self._places])

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures; see `validate.Benchmark`."""
        metrics = {}
        for name, column in score_pairs(self.batch, names, judges).items():
            scored: dict[str, dict[str, float]] = {}
            for (case, key), value in zip(self._places, column.tolist(), strict=True):
                scored.setdefault(case.id, {})[key] = value
            passed = {
                case.id: all(relation.holds(scored[case.id], self._tie) for relation in case.relations)
                for case in self._cases
            }
            metrics[name] = {"passed": sum(passed.values()), "of": len(self._cases), "cases": passed}
        return {
            "benchmark": "radjudge",
            "tie": self._tie,
            "categories": {case.id: case.category for case in self._cases},
            "metrics": metrics,
        }


def parse_ranking(ranking: Any, candidates: Mapping[str, Any], place: str) -> tuple[Relation, ...]:
    """The relations in `C1 > C2 = C3` or a list of such; of a chain also those between its ends."""
    lines = ranking if isinstance(ranking, list) else [ranking]
    if not lines or not all(isinstance(line, str) and line.strip() for line in lines):
        raise DataError(f"{place}: the expected ranking is {short_repr(ranking)}; write it as 'C1 > C2 = C3'.")
    found: list[Relation] = []
    for line in (part for text in lines for part in re.split(r"[,;\n]", text) if part.strip()):
        words = _RELATION.split(line.strip())
        names, signs = words[::2], words[1::2]
        if unknown := [name for name in names if name not in candidates]:
            known = ", ".join(candidates)
            raise DataError(f"{place}: the ranking '{line.strip()}' names '{unknown[0]}'; candidates are {known}.")
        if not signs or {">", "<"} <= set(signs):
            raise DataError(f"{place}: '{line.strip()}' is no ranking; write it as 'C1 > C2 = C3'.")
        if "<" in signs:
            names, signs = names[::-1], [sign.replace("<", ">") for sign in signs[::-1]]
        for first in range(len(names)):
            for second in range(first + 1, len(names)):
                equal = ">" not in signs[first:second]
                found.append(Relation(names[first], names[second], equal))
    return tuple(found)


def _case(item: Any, place: str) -> Case:
    if not isinstance(item, dict):
        raise DataError(f"{place} must be an object, not {short_repr(item)}.")
    needed = ("id", "ground_truth", "candidates", "expected_ranking")
    if missing := [key for key in needed if key not in item]:
        raise DataError(f"{place} has no '{missing[0]}'; a case needs {', '.join(needed)}.")
    key, candidates = str(item["id"]), item["candidates"]
    place = f"{place} ('{key}')"
    if not isinstance(candidates, dict) or len(candidates) < 2:
        raise DataError(f"{place} needs an object of two or more candidates.")
    told = parse_report(item["ground_truth"], f"{place}, 'ground_truth'")
    shared = item.get("context")
    pairs = {}
    for name, entry in candidates.items():
        spot = f"{place}, candidate {name}"
        entry = entry if isinstance(entry, dict) else {"text": entry}
        if "text" not in entry:
            raise DataError(f"{spot} has no 'text'.")
        context = _context(entry.get("context") or shared, spot)
        pairs[name] = Pair(f"{key}:{name}", told, parse_report(entry["text"], spot), key, context=context)
    found = parse_ranking(item["expected_ranking"], candidates, place)
    return Case(key, str(item.get("category", "")), pairs, found)


def _context(value: Any, place: str) -> Context:
    if value is None:
        return Context()
    if not isinstance(value, dict):
        raise DataError(f"{place}: the context is {short_repr(value)}; it must be an object with age and indication.")
    told = {str(key).lower().removeprefix("patient").strip("_ "): item for key, item in value.items()}
    indication = told.get("indication")
    return Context(parse_age(told.get("age"), place), indication if isinstance(indication, str) else None)
