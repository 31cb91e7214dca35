"""What the parts of a page on extraction share: runs of one victim, their names, and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.headlines import ARROWS
from cxrlab.render.folder import RunFolder, shortened
from cxrlab.render.html import UNKNOWN, figure, text
from cxrlab.render.robustness_parts import folded, number, part

FINDINGS = "findings.f1"
NONE, MOVED = "none", "ada-steal"  # the method without a query, and the one that moves its pictures
_LOUD = 6  # warnings in the open
# What a person asks for first; the rest is folded away.
FIRST = (
    FINDINGS,
    "findings.f1.side",
    "rougeL:coco",
    "bertscore",
    "radgraph.simple",
    "chexpert14.micro.f1:uncertain-positive",
    "errors.significant",
)
_TITLES = {
    FINDINGS: "findings F1",
    "findings.f1.side": "findings F1 with side",
    "findings.f1.full": "findings F1 with all details",
    "rougeL:coco": "ROUGE-L",
    "bleu4:coco": "BLEU-4",
    "bertscore": "BERTScore",
    "radgraph.simple": "RadGraph F1",
    "chexpert14.micro.f1:uncertain-positive": "CheXpert F1, micro",
    "chexpert14.macro.f1:uncertain-positive": "CheXpert F1, macro",
    "errors.significant": "significant errors a report",
    "green:rules": "GREEN by rules",
    "crimson:rules": "CRIMSON by rules",
}
# Options of moved pictures, which have no part in another method; and those that count where nothing is asked.
_OF_MOVED = ("rounds", "oracle", "direction", "steps", "eps", "picture", "guide")
_OF_NONE = ("surrogate", "size")


@dataclass(frozen=True)
class Copied:
    """One extraction of a victim.

    Args:
        run: Its folder.
        name: Method, pool, and whatever tells it from the others of the page.
        floor: The run without a query of the same surrogate, where the page has one; never a run's own.
    """

    run: RunFolder
    name: str
    floor: RunFolder | None = None

    @property
    def found(self) -> Mapping[str, Any]:
        """Content of extraction.json."""
        return self.run.extraction

    @property
    def asked(self) -> bool:
        """Whether the method asks at all."""
        return self.found.get("method") != NONE


def grouped(runs: Sequence[RunFolder]) -> list[list[Copied]]:
    """Extractions of the same victim, measured on the same studies, together; groups and runs in the order given."""
    groups: dict[tuple[str, ...], list[RunFolder]] = {}
    for run in runs:
        if run.extraction:
            key = tuple(str(run.config.get(name)) for name in ("victim", "data", "split", "n"))
            groups.setdefault(key, []).append(run)
    return [_named(group) for group in groups.values()]


def _named(group: Sequence[RunFolder]) -> list[Copied]:
    names = [_name(run, group) for run in group]
    out = []
    for run, name in zip(group, names, strict=True):
        label = name if names.count(name) == 1 else f"{name} ({run.path.resolve().name})"
        out.append(Copied(run, label, _floor(run, group)))
    return out


def _name(run: RunFolder, group: Sequence[RunFolder]) -> str:
    method = str(run.extraction.get("method") or run.path.resolve().name)
    if method == NONE:
        words = ["no query"]
    else:
        words = [method, shortened_pool(part(run.extraction, "options").get("pool"))]
    known = dict.fromkeys(option for one in group for option in part(one.extraction, "options") if option != "pool")
    for option in known:
        if applies(option, method) and len({_option(one, option) for one in group if _has(one, option)}) > 1:
            told = shortened(_option(run, option))
            words.append(f"{option} {'not set' if told == 'None' else told}")
    for setting in ("budget", "seed"):
        asking = [one for one in group if one.extraction.get("method") != NONE or setting == "seed"]
        if run in asking and len({str(one.config.get(setting)) for one in asking}) > 1:
            words.append(f"{setting} {run.config.get(setting)}")
    return ", ".join(words)


def shortened_pool(pool: Any) -> str:
    """A pool for people: of a long path only the end."""
    return "+".join(shortened(one) for one in str(pool).split("+"))


def _option(run: RunFolder, option: str) -> str:
    return str(part(run.extraction, "options").get(option))


def _has(run: RunFolder, option: str) -> bool:
    return applies(option, str(run.extraction.get("method")))


def applies(option: str, method: str) -> bool:
    """Whether an option has a part in a method: nothing is moved by Knockoff, and nothing asked by `none`."""
    if method == NONE:
        return option in _OF_NONE
    return method == MOVED or option not in _OF_MOVED


def _floor(run: RunFolder, group: Sequence[RunFolder]) -> RunFolder | None:
    same = [one for one in group if one.extraction.get("method") == NONE and one is not run]
    return next((one for one in same if _option(one, "surrogate") == _option(run, "surrogate")), None)


def metric_title(metric: str) -> str:
    """What people call a metric, as plain text; its name where there is no other."""
    return _TITLES.get(metric, metric)


def metric_heading(metric: str, found: Any) -> str:
    """Title with the arrow of the better direction, as markup."""
    arrow = ARROWS.get(str(part(found).get("direction")), "")
    return f"{text(metric_title(metric))}&nbsp;{arrow}".removesuffix("&nbsp;")


def told(found: Any) -> str:
    """A measurement in a sentence: value with its interval in brackets."""
    low, high = (number(part(found).get(side)) for side in ("low", "high"))
    value = figure(number(found))
    return value if low is None or high is None or value == UNKNOWN else f"{value} ({low:.3f} to {high:.3f})"


def chapter(name: str, inside: str) -> str:
    """A titled part of a section; nothing where it is empty."""
    return f"<div class=chapter><h3>{text(name)}</h3>{inside}</div>" if inside else ""


def alarm(sentences: Sequence[str]) -> str:
    """Warnings in a box, each escaped; the first few in the open."""
    lines = [f"<p><b>⚠ Warning.</b> {text(one)}</p>" for one in sentences]
    more = folded(f"{len(lines) - _LOUD} more warnings", "".join(lines[_LOUD:]))
    return f"<div class=alarm>{''.join(lines[:_LOUD])}{more}</div>" if lines else ""


def authorised(threat: Any, leave: Any) -> str:
    """The threat model and under whose leave, as a box; what is not recorded is said to be so."""
    said = f"{text(leave)}" if leave else "None is recorded; for a model on this machine none is asked."
    words = str(threat or "Threat model: not recorded.")
    head, colon, rest = words.partition(": ")
    shown = (
        f"<b>{text(head)}.</b> {text(rest[:1].upper() + rest[1:])}" if colon and head == "Threat model" else text(words)
    )
    return f"<div class=threat><p>{shown}</p><p class=last><b>Authorisation.</b> {said}</p></div>"
