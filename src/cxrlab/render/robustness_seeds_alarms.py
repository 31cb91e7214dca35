"""What the audits of a study warned of, each kind of warning once, with the number of audits that gave it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.folder import shortened
from cxrlab.render.html import text
from cxrlab.render.robustness_parts import folded, part

_MODEL = re.compile(r"\b(?:hf|builtin|stub|retrieval|https?):[^\s,;]*[^\s,;:.]")
# What differs between two audits that warn of the same; a radius, which stands after @, tells two warnings apart.
_FIGURE = re.compile(r"(?<![@\w])\d+\.\d+(?:e-?\d+)?|\d+ ?%")
_BLIND = "does not look at the image"
_LOUD = 6  # kinds of warnings in the open; who shouts thirty things is not heard


@dataclass(frozen=True)
class _Kind:
    """Lines that say the same of the start, or of aligned models."""

    lines: tuple[str, ...]
    aligned: bool
    exact: bool

    @property
    def blind(self) -> bool:
        return _BLIND in self.lines[0]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(name for line in self.lines if (name := _model(line))))


def alarms(found: Mapping[str, Any]) -> str:
    """Models that do not look at the image first, since nothing else counts for them; then every other warning."""
    audits = len(part(found, "variants")) * len(found.get("seeds") or ())
    kinds = _kinds([str(line) for line in found.get("warnings") or ()], list(part(found, "variants")))
    blind = [_blind(kind, audits) for kind in kinds if kind.blind]
    others = [_other(kind, audits) for kind in kinds if not kind.blind]
    more = folded(f"{len(others) - _LOUD} more kinds of warnings", "".join(others[_LOUD:]))
    return "".join(blind) + (f"<div class=alarm>{''.join(others[:_LOUD])}{more}</div>" if others else "")


def _kinds(lines: Sequence[str], variants: Sequence[str]) -> list[_Kind]:
    groups: dict[tuple[bool, str], list[str]] = {}
    for line in lines:
        aligned = not set(variants).isdisjoint((_model(line) or "").split("/"))
        groups.setdefault((aligned, _FIGURE.sub("…", _MODEL.sub("…", line))), []).append(line)
    # A file that names a line once, whoever gave it, leaves open how many audits of the one start did.
    repeated = len(set(lines)) < len(lines)
    return [_Kind(tuple(several), aligned, aligned or repeated) for (aligned, _), several in groups.items()]


def _model(line: str) -> str | None:
    named = _MODEL.search(line)
    return named.group() if named else None


def _count(kind: _Kind, audits: int) -> str:
    given = len(kind.models) if kind.aligned else len(kind.lines)
    return f"in {'' if kind.exact else 'at least '}{given} of {audits} audits" if given <= audits else ""


def _blind(kind: _Kind, audits: int) -> str:
    who = "aligned models do not look" if kind.aligned else "the start does not look"
    names = ", ".join(f"<b>{text(_end(name))}</b>" for name in kind.models)
    return (
        f"<p class=alarm><b>⚠ Blind: {who} at the image, {_count(kind, audits)}</b> ({names}). No figure below says "
        f"that such a model is robust. {text(_said(kind.lines[0]))}</p>{_rest(kind)}"
    )


def _other(kind: _Kind, audits: int) -> str:
    return f"<p><b>⚠ Warning, {_count(kind, audits)}.</b> {text(kind.lines[0])}</p>{_rest(kind)}"


def _rest(kind: _Kind) -> str:
    """The lines themselves where several became one."""
    lines = list(dict.fromkeys(kind.lines))
    listed = "".join(f"<p class=small>{text(line)}</p>" for line in lines)
    return folded(f"all {len(lines)} lines", listed) if len(lines) > 1 else ""


def _said(line: str) -> str:
    """What was measured, without the sentence that every such line starts with."""
    _, _, said = line.partition("fooled by them. ")
    return said or line


def _end(name: str) -> str:
    """A model's folder from the seed on, where it has one."""
    parts = name.split("/")
    seeds = [place for place, one in enumerate(parts) if re.fullmatch(r"seed\d+", one)]
    return "/".join(parts[seeds[-1] :]) if seeds else shortened(name)
