"""`cxrlab robustness`: how reports, answers and confidence change when images are perturbed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.cli.output import Result, columns
from cxrlab.robustness.settings import HardenConfig, RobustnessConfig

# Columns of the table: quantity, and what a person reads above it.
_COLUMNS = {
    "asked.accuracy": "answers right",
    "asked.confidence": "confidence",
    "findings.f1": "findings F1",
    "errors.significant": "grave errors",
    "flip_rate": "reports changed",
}

_TESTED = ("findings.f1", "asked.accuracy", "flip_rate")  # rows of a comparison


def robustness(config: RobustnessConfig, out: Path) -> Result:
    """Attack a model that you own or may test, and measure what becomes of its reports, answers and confidence.

    RUN/robustness.json has every quantity clean and perturbed with intervals, by label too; RUN/answers.jsonl what was
    said of every image. With --versus the models are compared on the same images and budgets, and each is shown the
    images made for the other. 'cxrlab page RUN' shows it all. A stopped audit is continued by running the command
    again.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.robustness.audit import audit

    found = audit(config, out)
    parts = [found["threat"], *(f"! {line}" for line in found["warnings"])]
    parts += [_table(name, model) for name, model in found["models"].items()]
    parts += [_certified(name, model["certified"]) for name, model in found["models"].items() if "certified" in model]
    parts += [_compared(pair) for pair in found["comparison"].values()]
    return Result("\n\n".join(part for part in parts if part), found)


def _table(name: str, model: Mapping[str, Any]) -> str:
    shown = [key for key in _COLUMNS if _has(model["clean"], key) or key == "flip_rate"]
    rows: list[list[str]] = [[name, *(_COLUMNS[key] for key in shown)]]
    rows.append(["clean", *(_cell(model["clean"].get(key)) for key in shown)])
    worst = {f"worst@{size}": row for size, row in model["worst"].items()}
    for condition, row in {**model["attacks"], **worst, **model["corruptions"]}.items():
        rows.append([condition, *(_cell(row.get(key)) for key in shown)])
    return columns(rows)


def _certified(name: str, found: Mapping[str, Any]) -> str:
    """What smoothing promises of closed answers."""
    rows = [[name, "certified right"], *([f"within {size}", _cell(row)] for size, row in found["right_within"].items())]
    return columns([*rows, ["no answer", _cell(found["abstained"])]])


def _compared(pair: Mapping[str, Any]) -> str:
    """The second model against the first: perturbed values, their difference, and that of the drops."""
    names = pair.get("names") or {}
    rows = [["b - a", "of", "a", "b", "difference", "p (Holm)", "of drops", "p (Holm)"]]
    for condition, row in pair["conditions"].items():
        for metric in _TESTED:
            found = row.get(metric) or {}
            if found.get("a") is not None and found.get("b") is not None:
                drop = found.get("drop") or {}
                rows.append([condition, metric, _plain(found["a"]), _plain(found["b"]), *_gap(found, "difference"),
                             *_gap(drop, "value")])  # fmt: skip
    told = "; ".join(f"{key}: {name}" for key, name in names.items())
    return f"{told}\n{pair.get('sentence', '')}\n{columns(rows)}"


def _gap(found: Mapping[str, Any], key: str) -> list[str]:
    if found.get(key) is None:
        return ["–", "–"]
    ends = [found.get("low"), found.get("high")]
    interval = "" if None in ends else f" [{ends[0]:+.3f}, {ends[1]:+.3f}]"
    return [f"{found[key]:+.3f}{interval}", _plain(found.get("p_holm"))]


def _plain(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"


def _has(values: Mapping[str, Any], key: str) -> bool:
    return key in values and values[key].get("value") is not None


def _cell(value: Mapping[str, Any] | None) -> str:
    if not value or value.get("value") is None:
        return "–"
    ends = [value.get("low"), value.get("high")]
    interval = "" if None in ends else f" [{ends[0]:.3f}, {ends[1]:.3f}]"
    return f"{value['value']:.3f}{interval}"


def harden(config: HardenConfig, out: Path) -> Result:
    """Fine-tune a model's vision encoder so that it sees in attacked images what it saw in clean ones.

    Images alone are learnt from; projector and language model stay as they are. RUN/checkpoint is the whole model,
    named hf:RUN/checkpoint; RUN/harden.json tells how far an attack moves the features of held-out images before and
    after,
    and how near the features of clean images have stayed. What it has cost in reports is told by generate, score and
    compare on both models.
    A stopped run goes on where it stopped and ends with the same weights; a finished one is left as it is.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.robustness.harden import harden as run

    done, found = run(config, out)
    lines = [
        f"{done.steps:,} steps on {done.rows:,} images against changes of up to {config.budget.label} a pixel; the "
        f"result is in {out / done.checkpoint}",
        f"trained {done.trained_parameters:,} of {done.parameters:,} weights",
    ]
    if left := sum(done.left_out.values()):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in done.left_out.items())
        lines.append(f"{left:,} studies were left out ({reasons})")
    if found["measured"] is not None:
        lines.append(f"\n{_table_hardening(found['measured'])}")
    return Result("\n".join(lines), {"training": done, "harden": found})


def _table_hardening(measured: Mapping[str, Any]) -> str:
    """How far features are from those of clean images before hardening."""
    attacked = measured["attacked"]
    rows = [
        ["features, against clean ones before", "distance²", "of their length²", "cosine"],
        _row("attacked, before", attacked["before"]),
        _row("attacked, after", attacked["after"]),
        _row("clean, after", measured["clean"]),
    ]
    attack = measured["attack"]
    told = f"means over {measured['n']} images of the {measured['split']} split; PGD of {attack['steps']} steps at "
    return f"{columns(rows)}\n{told}{attack['eps']}"


def _row(name: str, values: Mapping[str, float]) -> list[str]:
    return [name, f"{values['distance']:.4g}", f"{values['share']:.3f}", f"{values['cosine']:.3f}"]
