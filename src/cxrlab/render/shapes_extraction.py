"""What the conclusions of extraction, detection, defence and of a rehearsed server look like; see `shapes.check`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cxrlab.render.shapes import ANY, NUMBER, TEXT

_VALUES = dict.fromkeys(("value", "low", "high", "n", "undefined"), NUMBER)
_PUBLISHED = ("published", "published_ratio")
_MEASURED = {ANY: {**_VALUES, "direction": TEXT}}
_SHARE = dict.fromkeys(("value", "low", "high", "n"), NUMBER)
_VARIETY = {ANY: NUMBER, "findings": {ANY: NUMBER}, "rounds": {}}
_PROBING = {"dress": NUMBER, "queries": NUMBER, "passed": {ANY: NUMBER}}
EXTRACTED: Mapping[str, Any] = {
    **dict.fromkeys(("threat", "authorised", "method", "untouched"), TEXT),
    **dict.fromkeys(("budget", "spent", "answered", "refused", "cached", "lost", "n", "patients"), NUMBER),
    "cost": {"amount": NUMBER, "currency": TEXT, "unknown": NUMBER},
    "probing": _PROBING,
    **dict.fromkeys(("victim", "surrogate", "fidelity"), _MEASURED),
    "ratio": {ANY: {**_SHARE, "left_out": NUMBER}},
    "observations": {ANY: {ANY: {ANY: {**_VALUES, "support": NUMBER, "claimed": NUMBER}}}},
    **dict.fromkeys(("curve", "fidelity_curve"), {ANY: _MEASURED}),
    "transcript": {**_VARIETY, "rounds": {ANY: _VARIETY}},
    "options": {},
    "left_out": {ANY: TEXT},
}
_OVER_SEEDS = {"values": [NUMBER], **dict.fromkeys(("mean", "low", "high", "seeds"), NUMBER)}
_BY_SEED = [dict.fromkeys(("seed", "value", "low", "high", "difference", "p"), NUMBER)]
_ENDS = dict.fromkeys(("value", "low", "high"), NUMBER)
EXTRACTED_SEEDS: Mapping[str, Any] = {
    "seeds": [NUMBER],
    "metrics": [TEXT],
    **dict.fromkeys(("n", "patients"), NUMBER),
    "variants": {
        ANY: {
            "changes": TEXT,
            "metrics": {ANY: {ANY: {**_OVER_SEEDS, "by_seed": _BY_SEED}}},
            "curve": {ANY: {ANY: _OVER_SEEDS}},
            "transcript": {ANY: _OVER_SEEDS, "rounds": {}},
            **dict.fromkeys(("spent", "answered", "refused", "cost"), _OVER_SEEDS),
        }
    },
    "tables": {ANY: {"about": TEXT, "variants": [TEXT], **dict.fromkeys(_PUBLISHED, {ANY: {ANY: NUMBER}})}},
    "contrasts": [
        {
            **dict.fromkeys(("name", "against", "how"), TEXT),
            "metrics": {ANY: {"by_seed": _BY_SEED, "difference": _OVER_SEEDS, "pooled": _ENDS, "ratio": _ENDS}},
        }
    ],
    "pairwise": [
        {
            **dict.fromkeys(("a", "b", "judge"), TEXT),
            "n": [NUMBER],
            **dict.fromkeys(("a_better", "equal", "b_better", "net"), {**_OVER_SEEDS, "by_seed": _BY_SEED}),
        }
    ],
    "controls": {"n": NUMBER, "values": {ANY: _MEASURED}, "reached": {ANY: {ANY: [TEXT]}}},
}
MAPPED: Mapping[str, Any] = {
    "rows": [{**dict.fromkeys(("x", "y", "round", "count"), NUMBER), "source": TEXT, "text": TEXT}],
    **dict.fromkeys(("sentences", "left_out", "perplexity", "trustworthiness"), NUMBER),
    "embedding": TEXT,
}
_ANSWER = {"sha256": TEXT, "report": TEXT}
PAIR: Mapping[str, Any] = {
    "key": TEXT,
    "round": NUMBER,
    "before": _ANSWER,
    "after": _ANSWER,
    "wanted": TEXT,
    "spans": {},
}
DETECTED: Mapping[str, Any] = {
    **dict.fromkeys(("encoder", "metric"), TEXT),
    "warnings": [TEXT],
    "benign": {"held_out": TEXT, "held_out_images": NUMBER},
    "detectors": {ANY: {"bound": {ANY: NUMBER}, "queries": NUMBER, "false_positives": {ANY: _SHARE}}},
    "streams": {
        ANY: {
            **dict.fromkeys(("queries", "accounts"), NUMBER),
            "detectors": {
                ANY: {
                    **dict.fromkeys(("queries_to_detect", "median_queries"), NUMBER),
                    **dict.fromkeys(("detection_rate", "share_flagged"), _SHARE),
                    "quality": {**_VALUES, "budget": NUMBER, "reason": TEXT},
                }
            },
        }
    },
}
_MARK = {
    **dict.fromkeys(("z", "p", "n_choices", "green", "gamma", "rate", "contexts_needed", "queries_needed"), NUMBER),
    "reason": TEXT,
}
_GAP = dict.fromkeys(("a", "b", "with", "without", "difference", "low", "high", "p", "n"), NUMBER)
DEFENDED: Mapping[str, Any] = {
    **dict.fromkeys(("victim", "authorised"), TEXT),
    "n": NUMBER,
    "undefended": {"spent": NUMBER, "surrogate": _MEASURED},
    "defences": {
        ANY: {
            "safety": dict.fromkeys(("n", "reworded", "most_unsafe"), NUMBER),
            "benign": {
                **dict.fromkeys(("refused", "reworded"), _SHARE),
                "difference": {ANY: _GAP},
                "quota": {"answers": NUMBER, "by_images_per_window": {ANY: NUMBER}, "share_refused": NUMBER},
            },
            "harms": [TEXT],
            "attacks": {ANY: {"loss": _GAP, "result": {"spent": NUMBER, "refused": NUMBER}, "probing": _PROBING}},
            "evidence": {
                **dict.fromkeys(("unmarked", "marked", "enriched", "reworded"), _MARK),
                "copies": {ANY: _MARK},
            },
        }
    },
    "summary": {
        **dict.fromkeys(("severity", "missing", "rule"), TEXT),
        "copied": {"metric": TEXT, **dict.fromkeys(("ratio", "low", "high"), NUMBER)},
        "techniques": [dict.fromkeys(("id", "name", "part"), TEXT)],
        "cost_to_copy": {**dict.fromkeys(("queries", "money", "least_queries"), NUMBER), "currency": TEXT},
        "recommended": {
            **dict.fromkeys(("control", "nearest", "reason"), TEXT),
            "mitigation": dict.fromkeys(("id", "name"), TEXT),
        },
    },
}
REHEARSED: Mapping[str, Any] = {
    **dict.fromkeys(("model", "threat"), TEXT),
    "guard": {"detectors": [TEXT], "defence": TEXT},
    "benign": {
        **dict.fromkeys(("images", "accounts", "clients", "stopped", "seconds", "per_second"), NUMBER),
        **dict.fromkeys(("answered", "same_words"), _SHARE),
    },
    "alone": dict.fromkeys(("images", "seconds", "per_second"), NUMBER),
    "attacks": {ANY: dict.fromkeys(("queries", "reports", "stopped_at"), NUMBER)},
}
