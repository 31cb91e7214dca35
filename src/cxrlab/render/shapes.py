"""What the conclusions of a run look like, checked once when they are read: a page never meets a word for a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cxrlab.core.errors import DataError, shown

NUMBER, TEXT = "a number or null", "text"
ANY = "*"  # every key that the shape does not name

_VALUES = dict.fromkeys(("value", "low", "high", "n", "undefined"), NUMBER)
_ANSWERED = {ANY: {**dict.fromkeys(("asked", "parsed", "partial", "failed"), NUMBER), "reasons": {ANY: NUMBER}}}
SCORES: Mapping[str, Any] = {
    "metrics": {ANY: {**_VALUES, "direction": TEXT, "range": [NUMBER], "signature": TEXT}},
    "floors": {ANY: {ANY: NUMBER}},
    "slices": {ANY: {ANY: _VALUES}},
    "judges": _ANSWERED,
    "controls": {
        "image_dependence": {
            "metric": TEXT,
            "verdict": TEXT,
            "sentence": TEXT,
            "right": {ANY: _VALUES},
            "wrong": {ANY: {"metrics": {ANY: NUMBER}, "difference": _VALUES, "unchanged": NUMBER}},
        }
    },
}
COMPARED: Mapping[str, Any] = {
    "runs": [TEXT],
    "metrics": {
        ANY: {
            "direction": TEXT,
            "against": {
                ANY: {
                    **dict.fromkeys(("a", "b", "difference", "low", "high", "p_holm"), NUMBER),
                    "verdict": TEXT,
                    "by_study": {ANY: NUMBER},
                }
            },
        }
    },
    "gates": [{"run": TEXT, "sentence": TEXT}],
}
_OVER_SEEDS = {"values": [NUMBER], **dict.fromkeys(("mean", "low", "high", "seeds"), NUMBER)}
ABLATED: Mapping[str, Any] = {
    "metrics": [TEXT],
    "seeds": [NUMBER],
    "n": NUMBER,
    "variants": {
        ANY: {
            **dict.fromkeys(("changes", "paper", "stands_for"), TEXT),
            "published": {ANY: NUMBER},
            "metrics": {ANY: {**_OVER_SEEDS, "difference": _OVER_SEEDS}},
        }
    },
}
_PAIRED = dict.fromkeys(("a", "b", "difference", "low", "high"), NUMBER)
ANALYSED: Mapping[str, Any] = {
    "texts": {ANY: NUMBER},
    "metrics": {ANY: dict.fromkeys(("value", "low", "high", "n"), NUMBER)},
    "predictions": {ANY: {ANY: _PAIRED}},
}
EXPLAINED: Mapping[str, Any] = {
    **dict.fromkeys(("image", "report", "written_by"), TEXT),
    "maps": [TEXT],
    "words": [{"word": TEXT, "picture": TEXT, "image_share": [NUMBER], "log_probability": [NUMBER]}],
}
_AIMED = {ANY: dict.fromkeys(("value", "low", "high", "n"), NUMBER)}
POINTED: Mapping[str, Any] = {
    **dict.fromkeys(("model", "split", "report"), TEXT),
    **dict.fromkeys(("studies", "present", "told", "localised"), NUMBER),
    "maps": {ANY: dict.fromkeys(("localised", "all", "by_observation"), _AIMED)},
}
RETRIEVED: Mapping[str, Any] = {
    **dict.fromkeys(("model", "split"), TEXT),
    **dict.fromkeys(("gallery", "distinct_texts"), NUMBER),
    "recalls": {ANY: {ANY: {ANY: dict.fromkeys(("value", "low", "high", "n", "chance", "blind"), NUMBER)}}},
    "median_ranks": {ANY: {ANY: NUMBER}},
}
_AREAS = {ANY: dict.fromkeys(("value", "low", "high", "positives", "negatives"), NUMBER)}
_MEAN_AREA = dict.fromkeys(("value", "n"), NUMBER)
CLASSIFIED: Mapping[str, Any] = {
    "sentences": TEXT,
    **dict.fromkeys(("labels", "observations"), _AREAS),
    **dict.fromkeys(("mean_labels", "mean_observations"), _MEAN_AREA),
}
_MOVED = dict.fromkeys(("before", "after", "difference", "low", "high", "p"), NUMBER)
PREFERRED: Mapping[str, Any] = {
    **dict.fromkeys(("n", "patients"), NUMBER),
    **dict.fromkeys(("before", "after"), {ANY: _VALUES}),
    "difference": {
        ANY: {
            **dict.fromkeys(("difference", "low", "high", "p", "p_holm"), NUMBER),
            **dict.fromkeys(("direction", "verdict"), TEXT),
            "by_study": {ANY: NUMBER},
        }
    },
    "length": {"reference": NUMBER, "words": _MOVED, "mean_logprob": _MOVED},
    "drift": {ANY: NUMBER},
    "questions": {"n": NUMBER, "accuracy": _MOVED, "squared_error": _MOVED, "calibration_error": {ANY: NUMBER}},
    "retrieval": {"encoder": TEXT, "gallery": NUMBER, ANY: _MOVED},
    "selection": {**dict.fromkeys(("select", "judge"), TEXT), **dict.fromkeys(("step", "of", "score"), NUMBER)},
    "watched": [{ANY: NUMBER}],
}
_ALIGNED_METRIC = {
    **dict.fromkeys(("before", "after", "difference"), _OVER_SEEDS),
    "by_seed": [dict.fromkeys(("seed", "difference", "low", "high"), NUMBER)],
}
PREFERENCES: Mapping[str, Any] = {
    "metrics": [TEXT],
    "directions": {ANY: TEXT},
    "seeds": [NUMBER],
    **dict.fromkeys(("n", "patients"), NUMBER),
    "variants": {
        ANY: {
            "changes": TEXT,
            "published": {ANY: NUMBER},
            "metrics": {ANY: _ALIGNED_METRIC},
            **dict.fromkeys(("words", "length_ratio", "drift"), {ANY: _OVER_SEEDS}),
            **dict.fromkeys(("accuracy", "calibration_error"), _ALIGNED_METRIC),
            **dict.fromkeys(("pairs", "chosen_longer", "step", "steps"), _OVER_SEEDS),
        }
    },
}
# Figures of an audit are read one by one, and one that is no number is shown as a dash: conditions hold whatever the
# attack told. Checked are the containers, and the numbers that are drawn.
_CONDITIONS: Mapping[str, Any] = {ANY: {}}
AUDITED: Mapping[str, Any] = {
    "threat": TEXT,
    "warnings": [TEXT],
    "models": {
        ANY: {
            "key": TEXT,
            **dict.fromkeys(("clean", "smallest_eps"), {}),
            **dict.fromkeys(("attacks", "corruptions", "worst"), _CONDITIONS),
            "labels": {ANY: _CONDITIONS},
            "curves": {ANY: {ANY: [[NUMBER]]}},
        }
    },
    "comparison": {ANY: {"sentence": TEXT, **dict.fromkeys(("conditions", "flips", "transfer"), _CONDITIONS)}},
    "controls": {"image_dependence": {ANY: {"verdict": TEXT, "sentence": TEXT}}},
    "protocol": {},
}
_BOTH_SIDES = dict.fromkeys(("start", "aligned"), _OVER_SEEDS)
_CHANGED = {
    **_OVER_SEEDS,
    "by_seed": [dict.fromkeys(("seed", "value", "low", "high", "p_holm"), NUMBER)],
    "clear": NUMBER,
}
AUDITED_SEEDS: Mapping[str, Any] = {
    "threat": TEXT,
    "warnings": [TEXT],
    "seeds": [NUMBER],
    **dict.fromkeys(("n", "patients"), NUMBER),
    "variants": {
        ANY: {
            "changes": TEXT,
            "clean": {ANY: _BOTH_SIDES},
            "conditions": {
                ANY: {
                    ANY: {**_BOTH_SIDES, "difference": _CHANGED, "drop": _CHANGED, "smallest_detectable": _OVER_SEEDS}
                }
            },
            "transfer": {ANY: {ANY: _OVER_SEEDS}},
        }
    },
}
TRIPTYCH: Mapping[str, Any] = {
    **dict.fromkeys(("id", "model", "condition", "eps", "reference", "before", "after"), TEXT),
    **dict.fromkeys(("clean", "difference", "perturbed"), TEXT),
    "spans": {},
    "label_flips": [{}],
    "linf": NUMBER,
}
_TAUS = ("tau", "low", "high", "tau_significant", "low_significant", "high_significant")
_SEATS = {
    "judge": TEXT,
    "by_rater": {ANY: {ANY: NUMBER}},
    "mean": {ANY: NUMBER},
}
_GAP = dict.fromkeys(("difference", "low", "high", "n"), NUMBER)
VALIDATED: Mapping[str, Any] = {
    "metrics": {ANY: dict.fromkeys((*_TAUS, "n", "passed", "of"), NUMBER)},
    "ceiling": {"leave_one_out_tau": [NUMBER]},
    "raters": {"judges": {ANY: {**_SEATS, "total": _SEATS, "significant": _SEATS}}},
    "differences": {ANY: {"above": TEXT, "total": _GAP, "significant": _GAP}},
    "judges": _ANSWERED,
}

_COUNTS = {ANY: NUMBER}
_SPREAD = dict.fromkeys(("n", "least", "first", "median", "third", "most"), NUMBER)
CHECKED: Mapping[str, Any] = {"problems": _COUNTS, "stated": _COUNTS, "examples": [{"kind": TEXT, "message": TEXT}]}
COUNTED: Mapping[str, Any] = {
    **dict.fromkeys(("splits", "masked", "dropped", "remarks"), _COUNTS),
    **dict.fromkeys(("views", "usable", "sexes", "ages", "repeats"), {ANY: _COUNTS}),
    **dict.fromkeys(("labels", "own_labels"), {ANY: {ANY: _COUNTS}}),
    **dict.fromkeys(("with_text", "absent_images"), NUMBER),
    "texts": {ANY: _SPREAD},
    "images": {
        **dict.fromkeys(("width", "height", "mean_grey", "spread_of_grey"), _SPREAD),
        **dict.fromkeys(("depth", "suspects"), _COUNTS),
        **dict.fromkeys(("read", "colour"), NUMBER),
    },
}


def check(value: Any, shape: Any, file: str, way: str = "") -> None:
    """Refuse what has another shape with a `DataError` that names file and key.

    Args:
        value: What the file holds.
        shape: NUMBER, TEXT, a list with the shape of its items, or an object of keys, each of which may be left out
            or null; what the shape does not name may be anything.
        file: Name of the file.
        way: Keys that lead to the value.
    """
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(value, "an object", file, way)
        for key, item in value.items():
            inner = shape.get(key, shape.get(ANY))
            if inner is not None and (item is not None or key not in shape):
                check(item, inner, file, f"{way}.{key}" if way else str(key))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _wrong(value, "a list", file, way)
        for place, item in enumerate(value):
            check(item, shape[0], file, f"{way}[{place}]")
    elif shape == NUMBER:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise _wrong(value, NUMBER, file, way)
    elif not isinstance(value, str):
        raise _wrong(value, TEXT, file, way)


def _wrong(value: Any, wanted: str, file: str, way: str) -> DataError:
    what = f"'{way}' is {shown(value)}" if way else f"it holds {shown(value)}"
    return DataError(f"{file}: {what}; it must be {wanted}. Make the run again.")
