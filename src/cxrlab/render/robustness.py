"""The section of a page on a robustness audit, from the threat to the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import RunFolder
from cxrlab.render.html import ends, facts, figure, section, table, text
from cxrlab.render.robustness_compare import comparisons
from cxrlab.render.robustness_curves import curves
from cxrlab.render.robustness_labels import headlines_of
from cxrlab.render.robustness_parts import FULL, Audited, first_open, folded, models_of, named, part
from cxrlab.render.robustness_tables import conditions, corruptions, realised, smallest
from cxrlab.render.triptychs import triptychs

_BLIND = "blind"
_LOUD = 6  # warnings in the open; who shouts thirty things is not heard
_VERDICTS = {"looks": ("here", "✓ looks at the image"), "unclear": ("doubt", "? not clear that it looks at the image")}
_CURVES = (
    "Shade: interval by patient. Dashed grey: noise of the same size, the control; harm that noise does too "
    "is not the attack's. Every share runs from 0 to 1."
)


def robustness(runs: Sequence[RunFolder]) -> str:
    """Everything that an audit found, the most telling first."""
    return section("Robustness", *(_one(run) for run in runs if run.robustness))


def _one(run: RunFolder) -> str:
    audit = run.robustness
    models = models_of(audit)
    norm = str(part(audit, "protocol").get("norm") or "linf")
    parts = [
        _threat(audit),
        _alarms(audit, models),
        _titled("Accuracy and confidence by label", _verdicts(audit, models) + headlines_of(models)),
        _titled("Over the radius", _noted(curves(audit), _CURVES)),
        _titled("Smallest harmful radius", first_open(models, [smallest(model) for model in models])),
        _titled("Certified answers", "".join(map(_certified, models))),
        _titled(
            "Every condition",
            first_open(models, [conditions(model, place < FULL) for place, model in enumerate(models)]),
        ),
        _titled("What the perturbations were", first_open(models, [realised(model, norm) for model in models])),
        _titled("Natural corruptions", first_open(models, [corruptions(model) for model in models])),
        _titled("Models against each other", comparisons(audit, models)),
        _titled("Images and reports", triptychs(run, models)),
        folded("protocol", facts(part(audit, "protocol")) if part(audit, "protocol") else ""),
    ]
    return "".join(parts)


def _titled(name: str, inside: str) -> str:
    return f"<div class=chapter><h3>{text(name)}</h3>{inside}</div>" if inside else ""


def _noted(inside: str, note: str) -> str:
    return f"{inside}<p class=small>{note}</p>" if inside else ""


def _threat(audit: Mapping[str, Any]) -> str:
    told = audit.get("threat")
    return f"<p class=threat><b>Threat model.</b> {text(told)}</p>" if told else ""


def _alarms(audit: Mapping[str, Any], models: Sequence[Audited]) -> str:
    """Models that do not look at the image first, since nothing else counts for them; then what the run warned of."""
    blind = {key: found for key, found in _dependence(audit).items() if found.get("verdict") == _BLIND}
    told = [
        f"<p class=alarm><b>⚠ Blind: {named(models, key)} does not look at the image.</b> {text(found.get('sentence'))} "
        "No figure below says that it is robust.</p>"
        for key, found in blind.items()
    ]
    said = [str(found["sentence"]) for found in blind.values() if found.get("sentence")]
    warnings = [one for one in audit.get("warnings") or () if not any(sentence in one for sentence in said)]
    lines = [f"<p><b>⚠ Warning.</b> {text(one)}</p>" for one in warnings]
    more = folded(f"{len(lines) - _LOUD} more warnings", "".join(lines[_LOUD:]))
    return "".join(told) + (f"<div class=alarm>{''.join(lines[:_LOUD])}{more}</div>" if lines else "")


def _verdicts(audit: Mapping[str, Any], models: Sequence[Audited]) -> str:
    """Beside the headline: whether each model looks at the image at all."""
    out = []
    for key, found in _dependence(audit).items():
        style, words = _VERDICTS.get(
            str(found.get("verdict")), ("doubt", "? not measured whether it looks at the image")
        )
        if found.get("verdict") != _BLIND:
            sentence = f" {text(found['sentence'])}" if found.get("sentence") else ""
            out.append(f"<p class=small><b class={style}>{named(models, key)}: {words}.</b>{sentence}</p>")
    return "".join(out)


def _certified(model: Audited) -> str:
    """What randomised smoothing promises of a model's closed answers; nothing where it is not smoothed."""
    found = part(model.found, "certified")
    shares = part(found, "right_within")
    if not shares:
        return ""
    every = {**{text(size): part(shares, size) for size in shares}, "no answer": part(found, "abstained")}
    rows = [[name, figure(one.get("value")), ends(one)] for name, one in every.items()]
    told = f"<p class=small><b>{text(model.name)}.</b> {text(found.get('sentence'))}</p>"
    return told + table(["Euclidean length", "share of answers", "95 % interval"], rows, numbers=1)


def _dependence(audit: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    told = part(audit, "controls", "image_dependence")
    return {str(key): part(told, key) for key in told}
