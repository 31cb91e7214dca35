"""Presets of metrics: the columns that papers and leaderboards print, each by the convention behind it.

A column whose convention is not computed here, or that needs files of the user, is listed as missing with how to get
it. It is never replaced by another convention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import ConfigError
from cxrlab.core.headline_metrics import is_error_count, is_model_judge
from cxrlab.evaluation.select_metrics import REQUIREMENTS, UNSUPPORTED


@dataclass(frozen=True)
class PresetRow:
    """One column of a paper."""

    label: str  # as papers print it
    metrics: tuple[str, ...] = ()  # the metric behind it; empty where it is missing
    needs: tuple[str, ...] = ()  # settings of `score` without which the metric cannot be computed
    judge: str = ""  # kind of a judge by a language model that gives it, named with its model under --metrics
    missing: str = ""  # why there is no value, and how to get one; empty where there is one
    note: str = ""  # what a reader of the value has to know

    def resolve(self, settings: Mapping[str, Any], scored: Sequence[str]) -> PresetRow:
        """The row for these settings and scored metrics: with its metrics, or with what is missing."""
        if self.judge:
            found = tuple(
                name
                for name in scored
                if name.startswith(f"{self.judge}:") and is_model_judge(name) and not is_error_count(name)
            )
            how = f"--metrics {self.judge}:hf:FOLDER or --metrics {self.judge}:http://HOST/v1#NAME"
            return replace(self, metrics=found, missing="" if found else f"it needs a language model: {how}")
        if self.needs and any(settings.get(name) is None for name in self.needs):
            family = next(start for start in REQUIREMENTS if self.metrics[0].startswith(start))
            return replace(self, metrics=(), missing=f"it needs {REQUIREMENTS[family].format('--')}")
        return self


_CHEXBERT, _GRAPHS = ("chexbert", "bert"), ("graphs",)
_RADCLIQ = ("graphs", "encoder", "chexbert", "bert")
_GREEN = PresetRow("GREEN", judge="green", note="a language model's counts by this program's prompt")


def _chexbert(policy: str, *labels: str) -> tuple[PresetRow, ...]:
    """CheXbert F1 for labels that end in `Micro-F1-14` and the like; uncertain labels count as the policy says."""
    rows = []
    for label in labels:
        mean, _, observations = label.removeprefix("CheXbert ").removesuffix("+").split("-")
        metric = f"chexbert{observations}.{mean.lower()}.f1:uncertain-{policy}"
        rows.append(PresetRow(label, (metric,), _CHEXBERT))
    return tuple(rows)


_PAPER = (
    PresetRow("BLEU-1", ("bleu1:coco",)),
    PresetRow("BLEU-2", ("bleu2:coco",)),
    PresetRow("BLEU-3", ("bleu3:coco",)),
    PresetRow("BLEU-4", ("bleu4:coco",)),
    PresetRow("METEOR", missing=UNSUPPORTED["meteor"]),
    PresetRow("ROUGE-L", ("rougeL:coco",)),
    PresetRow("CIDEr", ("cider:coco",)),
    PresetRow("BERTScore", ("bertscore",), ("encoder",), note="raw cosines, not rescaled"),
    *_chexbert("positive", *(f"CheXbert {mean}-F1-{labels}" for labels in (14, 5) for mean in ("Micro", "Macro"))),
    PresetRow("RadGraph F1", ("radgraph.partial",), _GRAPHS),
    PresetRow("RadCliQ-v1", ("radcliq1",), _RADCLIQ, note="lower is better; some tables print its reciprocal"),
    _GREEN,
)
# The twelve columns of LLaVA-Rad's supplementary tables, in their order, as its released evaluator computes them; it
# also prints ROUGE-2.
_LLAVA_RAD = (
    *_chexbert("negative", "Micro-F1-14", "Micro-F1-5", "Macro-F1-14", "Macro-F1-5"),
    *_chexbert("positive", "Micro-F1-14+", "Micro-F1-5+", "Macro-F1-14+", "Macro-F1-5+"),
    PresetRow(
        "F1-RadGraph",
        ("radgraph.partial:cased",),
        _GRAPHS,
        note="--graphs radgraph is the evaluator's model; two reports without an entity are undefined, there 0",
    ),
    PresetRow("BLEU-1", ("bleu1:sacre",)),
    PresetRow("BLEU-4", ("bleu4:sacre",)),
    PresetRow("ROUGE-L", ("rougeL:google-unstemmed",)),
    PresetRow("ROUGE-2", ("rouge2:google-unstemmed",)),
)
_REXRANK = (
    PresetRow(
        "BLEU", missing="it is the BLEU-2 of single reports by CXR-Report-Metric, which is only a part of radcliq1"
    ),
    PresetRow(
        "BertScore",
        missing="it is rescaled; with --encoder distilroberta-base and --metrics bertscore it is "
        "(bertscore - 0.8473319) / (1 - 0.8473319)",
    ),
    PresetRow("SembScore", missing="it is the similarity of CheXbert embeddings, which is only a part of radcliq1"),
    PresetRow("RadGraph", ("radgraph.combined",), _GRAPHS, note="ReXrank's graphs come from the first RadGraph model"),
    PresetRow(
        "RadCliQ-v1",
        ("radcliq1",),
        _RADCLIQ,
        note="ReXrank prints 1/RadCliQ-v1, which ranks a perfect report below a useless one; this is RadCliQ-v1 itself",
    ),
    PresetRow("RaTEScore", missing=UNSUPPORTED["ratescore"]),
    _GREEN,
    PresetRow(
        "1/FineRadScore", missing="it asks a language model to correct the report line by line; not computed here"
    ),
)
PRESETS: Mapping[str, tuple[PresetRow, ...]] = MappingProxyType(
    {"paper": _PAPER, "llava-rad": _LLAVA_RAD, "rexrank": _REXRANK}
)


def preset_metrics(preset: str, settings: Mapping[str, Any], more: Sequence[str] = ()) -> tuple[str, ...]:
    """The metrics of a preset that can be computed with these settings, and then `more`."""
    rows = [row.resolve(settings, ()) for row in PRESETS[preset]]
    found = tuple(dict.fromkeys([name for row in rows for name in row.metrics] + list(more)))
    if not found:
        missing = "; ".join(f"{row.label}: {row.missing}" for row in rows if row.needs or row.judge)
        raise ConfigError(f"--preset {preset} has nothing to compute with what was given. {missing}.")
    return found
