"""Section of a page: what scored runs come to when the model is shown the wrong images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, ends, figure, section, table, text
from cxrlab.render.scores import scored_runs

_STYLES = {"looks": "here", "blind": "bad"}
_NOTE = (
    "The same studies, with the same indications, shown with the right image and with wrong ones: noise, a blank image "
    "of mid grey, and the image of another patient. A model that ignores the image scores the same on all of them, and "
    "would look robust against any change of the image. Bars run from 0 to 1: the right image with its interval, and a "
    "tick for the wrong one."
)


def image_dependence(runs: Sequence[RunFolder]) -> str:
    """Verdict and figures of every scored run whose predictions came with wrong images."""
    told, silent = [], []
    for run, part in scored_runs(runs):
        found = (part.scores.get("controls") or {}).get("image_dependence")
        if found:
            told.append(_one(run.name, found))
        else:
            silent.append(run.name)
    if told and silent:
        told.append(f"<p class=later>Not measured for {text(', '.join(silent))}.</p>")
    return section("Does the image matter?", *told, note=_NOTE)


def _one(name: str, found: Mapping[str, Any]) -> str:
    style = _STYLES.get(str(found.get("verdict")), "later")
    metric = str(found.get("metric"))
    right = (found.get("right") or {}).get(metric) or {}
    wrong = {kind: image for kind, image in (found.get("wrong") or {}).items() if image}
    rows = [["right", _figure(right.get("value"), right), _scale(right, None), "", ""]]
    for kind, image in wrong.items():
        gap, value = image.get("difference") or {}, (image.get("metrics") or {}).get(metric)
        rows.append(
            [text(kind), _figure(value), _scale(right, value), _figure(gap.get("value"), gap), _share(image)],
        )
    head = ["image", text(metric), "", "right is better by", "same words"]
    return (
        f"<h3>{text(name)}</h3><p class={style}>{text(found.get('sentence'))}</p>{table(head, rows, 1)}"
        f"{_rest(metric, found.get('right') or {}, wrong)}"
    )


def _rest(metric: str, right: Mapping[str, Any], wrong: Mapping[str, Any]) -> str:
    """The other metrics, folded away."""
    names = [name for name in right if name != metric]
    if not names:
        return ""
    rows = [
        [
            text(name),
            _figure((right[name] or {}).get("value"), right[name] or {}),
            *(_figure((image.get("metrics") or {}).get(name)) for image in wrong.values()),
        ]
        for name in names
    ]
    head = ["metric", "right image", *(text(kind) for kind in wrong)]
    return f"<details><summary>{len(names)} more metrics</summary>{table(head, rows, len(wrong))}</details>"


def _share(image: Mapping[str, Any]) -> str:
    share = image.get("unchanged")
    return UNKNOWN if share is None else f"{100 * share:.0f} %"


def _figure(value: Any, around: Mapping[str, Any] | None = None) -> str:
    if value is None:
        return UNKNOWN
    span = "" if not around or around.get("low") is None else f" <span class=later>{ends(around)}</span>"
    return f"<span class=figure>{figure(value)}{span}</span>"


def _scale(right: Mapping[str, Any], value: float | None) -> str:
    """A bar from 0 to 1 with the right image's value and interval, and a tick for a wrong image's value."""
    middle = right.get("value")
    if middle is None:
        return ""
    low, high = (middle if right.get(key) is None else right[key] for key in ("low", "high"))
    left, end, dot = (100 * min(max(place, 0.0), 1.0) for place in (low, high, middle))
    tick = "" if value is None else f'<i style="left:{100 * min(max(value, 0.0), 1.0):.1f}%"></i>'
    span = f'<span style="left:{left:.1f}%;width:{max(end - left, 0.5):.1f}%"></span>'
    return f'<span class=scale>{span}{tick}<b style="left:{dot:.1f}%"></b></span>'
