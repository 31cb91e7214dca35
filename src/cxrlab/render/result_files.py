"""The result files that a page reads: their names, their shapes, and the check of a file against its shape."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import DataError, short_repr

SUMMARY, PER_STUDY = "summary.json", "per_study.jsonl"
SCORES, COMPARISON, VALIDATION = "scores.json", "comparison.json", "validation.json"
CHECK, STATISTICS = "check.json", "statistics.json"
ABLATIONS, ANALYSIS = "ablations.json", "analysis.json"
EXPLAIN, POINTING = "explain.json", "pointing.json"
RETRIEVAL, ZERO_SHOT = "retrieval.json", "zero_shot.json"
PREFERENCE, PREFERENCES = "preference.json", "preferences.json"
ROBUSTNESS, ROBUSTNESS_SEEDS, TRIPTYCHS = "robustness.json", "robustness_seeds.json", "triptychs.jsonl"
EXTRACTION, EXTRACTION_SEEDS = "extraction.json", "extraction_seeds.json"
SENTENCE_MAP, EXAMPLE_PAIRS = "map.json", "examples.json"
DETECTION, DEFENCE, REHEARSAL = "detection.json", "defence.json", "rehearsal.json"

# Command → the files with which its run ends; a page names those that an unfinished run lacks.
CONCLUSIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tour": (SUMMARY,),
        "study": (SUMMARY,),
        "data check": (CHECK, STATISTICS, SUMMARY),
        "data scrub": (SUMMARY,),
        "train encoder": (SUMMARY,),
        "train align": (SUMMARY,),
        "train finetune": (SUMMARY,),
        "generate": (SUMMARY,),
        "score": (SCORES,),
        "compare": (COMPARISON,),
        "explain": (EXPLAIN,),
        "pointing": (POINTING,),
        "metrics validate": (VALIDATION,),
        "retrieve": (RETRIEVAL,),
        "prefer sample": (SUMMARY,),
        "prefer judge": (SUMMARY,),
        "prefer pair": (SUMMARY,),
        "prefer train": (SUMMARY,),
        "harden": ("harden.json", SUMMARY),
        "robustness": (ROBUSTNESS, SUMMARY),
        "extract": (EXTRACTION,),
        "detect": (DETECTION,),
        "defend": (DEFENCE,),
        "serve rehearse": (REHEARSAL,),
    }
)

_ANY, _NUMBER = "*", "number"


@functools.cache
def result_shapes() -> Mapping[str, Any]:
    """File → shape, from result_shapes.yaml. Every such file that a run has is read and checked."""
    shapes, _ = read_yaml(Path(__file__).with_name("result_shapes.yaml"))
    return {file: _expanded(shape) for file, shape in shapes.items()}


def _expanded(shape: Any) -> Any:
    """A shape with one key for each name: `low, high: number` stands for two."""
    if isinstance(shape, Mapping):
        return {name: _expanded(inner) for names, inner in shape.items() for name in names.split(", ")}
    return [_expanded(shape[0])] if isinstance(shape, list) else shape


def check(value: Any, shape: Any, file: str, place: str = "") -> None:
    """Refuse content of another shape with a `DataError` that names file and key.

    Args:
        value: Content.
        shape: See result_shapes.yaml.
        file: Name of the file.
        place: Keys that lead to the value.
    """
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(value, "an object", file, place)
        for key, item in value.items():
            inner = shape.get(key, shape.get(_ANY))
            if inner is not None and (item is not None or key not in shape):
                check(item, inner, file, f"{place}.{key}" if place else str(key))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(value, "a list", file, place)
        for number, item in enumerate(value):
            check(item, shape[0], file, f"{place}[{number}]")
    elif shape == _NUMBER:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise _wrong(value, "a number or null", file, place)
    elif not isinstance(value, str):
        raise _wrong(value, "text", file, place)


def _wrong(value: Any, expected: str, file: str, place: str) -> DataError:
    what = f"'{place}' is {short_repr(value)}" if place else f"it holds {short_repr(value)}"
    return DataError(f"{file}: {what}; it must be {expected}. Repeat the run.")
