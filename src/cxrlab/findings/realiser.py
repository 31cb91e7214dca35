"""Puts one finding at a time into words: noun phrases, clauses, changes and hedges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Group, Severity, Side, observation
from cxrlab.findings.disease_models import SHAPES, Shape
from cxrlab.findings.lexicon import Lexicon, Phrases, centimetres, compiled, fill, listed, millimetres, without_article

T = TypeVar("T")


class Realiser:
    """Chooses words from a lexicon and avoids those it has already used in this report."""

    def __init__(self, lexicon: Lexicon, rng: np.random.Generator) -> None:
        """Takes words from `lexicon` and every choice from `rng`."""
        self.lexicon = lexicon
        self.rng = rng
        self._used: set[object] = set()

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.rng.random() < share

    def pick(self, options: Sequence[T]) -> T:
        """One option, an unused one where three tries find it."""
        for _ in range(3):
            option = options[int(self.rng.random() * len(options))]
            if option not in self._used:
                break
        self._used.add(option)
        return option

    def phrases(self, finding: Finding) -> Phrases:
        """The lexicon's phrases for the finding; refuses a finding that lacks what they need."""
        name = finding.observation
        if name not in self.lexicon.observations:
            raise DataError(f"lexicon {self.lexicon.name} has no words for '{name}'; narrate drawn observations only.")
        row, shape = observation(name), SHAPES.get(name, Shape())
        wanted = {
            "side": row.sided,
            "location": shape.places is not None,
            "severity": row.graded and finding.present,
            "size_mm": row.measured and finding.present,
            "tip": shape.tips is not None and finding.present,
        }
        missing = [key for key, needed in wanted.items() if needed and getattr(finding, key) is None]
        if missing or finding.severity is Severity.TRACE:
            what = ", ".join(missing) or "a grade of mild, moderate or severe"
            raise DataError(f"the finding '{name}' cannot be worded without {what}; complete it first.")
        return self.lexicon.observations[name]

    def noun(self, finding: Finding) -> tuple[str, bool]:
        """A noun phrase with its article, and whether it is plural."""
        row = self.phrases(finding)
        fitting = (*row.nouns, *row.mild) if finding.severity is Severity.MILD else row.nouns
        return self._render(self.pick(fitting), finding)

    def ribs(self, findings: Sequence[Finding]) -> tuple[str, bool]:
        """Several broken ribs of one side as one noun phrase, which is plural."""
        ordinals = [self.lexicon.ribs[f.location or ""][0] for f in sorted(findings, key=lambda f: f.location or "")]
        side = findings[0].side.value if findings[0].side else ""
        group = self.pick(self.lexicon.rib_groups).replace("{side}", side)
        return group.replace("{ribs}", listed(ordinals, "and")), True

    def gone(self, finding: Finding) -> tuple[str, bool]:
        """A noun phrase without article for something that was there."""
        return self._render(self.pick(self.phrases(finding).gone), finding)

    def clause(self, finding: Finding) -> str:
        """A whole clause; its verb carries the hedge of a possible finding."""
        return self._render(self.pick(self.phrases(finding).clauses), finding)[0]

    def framed(self, frame: str, noun: str, plural: bool) -> str:
        """A sentence around a noun phrase, without capital and full stop."""
        parts, _ = compiled(frame, plural)
        return fill(parts, {"np": noun, "bare": without_article(noun)}.__getitem__)

    def change(self, finding: Finding) -> str:
        """The trailing phrase on the change since the prior; empty where nothing was compared."""
        if finding.change is None:
            return ""
        return ", " + self.pick(self.lexicon.changes[kind_of(finding)][finding.change])

    def present(self, finding: Finding, *, fragment: bool) -> str:
        """One statement of a present finding with everything that belongs to it."""
        row = self.phrases(finding)
        clause = bool(row.clauses) and not fragment and self.chance(len(row.clauses) / len(row.ways))
        if clause:
            return self.clause(finding) + self.change(finding)
        noun, plural = self.noun(finding)
        if finding.certainty is Certainty.POSSIBLE:
            return self.framed(self.pick(self.lexicon.hedged), noun, plural) + self.change(finding)
        if fragment and can_lead(finding) and self.chance(0.4) and finding.change is not None:
            return f"{self.pick(self.lexicon.leads[finding.change])} {without_article(noun)}"
        frame = self.pick(self.lexicon.terse if fragment else self.lexicon.full)
        return self.framed(frame, noun, plural) + self.change(finding)

    def resolved(self, finding: Finding) -> str:
        """One statement that something is no longer there."""
        noun, plural = self.gone(finding)
        return self.framed(self.pick(self.lexicon.resolved[kind_of(finding)]), noun, plural)

    def _render(self, template: str, finding: Finding) -> tuple[str, bool]:
        parts, plural = compiled(template, finding.side is Side.BILATERAL)
        return fill(parts, lambda name: self._slot(name, finding, plural)), plural

    def _slot(self, name: str, finding: Finding, plural: bool) -> str:
        lexicon = self.lexicon
        side = finding.side.value if finding.side else ""
        both = finding.side is Side.BILATERAL
        match name:
            case "side":
                return side
            case "sev" | "adv":
                scale = "adverb" if name == "adv" else lexicon.observations[finding.observation].scale
                return self.pick(lexicon.scales[scale][finding.severity.value if finding.severity else ""])
            case "on":
                return self.pick(lexicon.on_side)[both].replace("{side}", side)
            case "in":
                return self._place(finding)
            case "size":
                return self._measure(finding.size_mm)
            case "height":
                return self._measure(finding.tip_mm)
            case "rib":
                return self.pick(lexicon.ribs[finding.location or ""])
            case "at":
                parts, _ = compiled(self.pick(lexicon.tips[finding.observation][finding.tip or ""]), both)
                return fill(parts, lambda inner: self._slot(inner, finding, plural))
            case "tip":
                return self.pick(lexicon.tip_frames).replace("{at}", self._slot("at", finding, plural))
            case "is" | "are":
                many = plural or name == "are"
                if finding.certainty is Certainty.POSSIBLE:
                    return self.pick(lexicon.hedged_verbs)[many]
                return "are" if many else "is"
        raise DataError(f"lexicon {lexicon.name} uses an unknown slot '{{{name}}}' for '{finding.observation}'.")

    def _place(self, finding: Finding) -> str:
        lexicon = self.lexicon
        location = finding.location or ""
        if finding.side is None:
            return self.pick(lexicon.unsided_places[location])
        place = self.pick(lexicon.places)[finding.side is Side.BILATERAL]
        return place.replace("{side}", finding.side.value).replace("{zone}", lexicon.zones[location])

    def _measure(self, value: float | None) -> str:
        if value is None:
            raise DataError("a measured finding has no size; give size_mm or tip_mm.")
        return millimetres(value) if self.chance(0.5) else centimetres(value)


def kind_of(finding: Finding) -> str:
    """How the finding changes over time: as a device, a broken bone, a measured lesion or otherwise.

    Low lung volumes stand apart: "less" of a lack may mean more or less air.
    """
    row = observation(finding.observation)
    if row.group is Group.DEVICE:
        return "device"
    if finding.observation.endswith("fracture"):
        return "bone"
    if finding.observation == "low lung volumes":
        return "inflation"
    return "lesion" if row.measured else "finding"


def can_lead(finding: Finding) -> bool:
    """Whether the change may stand before the noun ("unchanged …"); sizes grow in words of their own."""
    return kind_of(finding) == "finding" or finding.change in (Change.NEW, Change.UNCHANGED)


# A mark's key is the index of a finding of the visit, or the name of a denied observation.
Mark = tuple[int, int, int | str]


@dataclass(frozen=True)
class Statement:
    """One sentence without capital and full stop."""

    text: str
    marks: tuple[Mark, ...] = ()  # (start, end, key) with characters [start, end) of `text`
    region: str = ""  # the region under which it stands; empty for the whole radiograph

    @classmethod
    def whole(cls, text: str, *keys: int | str) -> Statement:
        """A statement with one mark per key, each over all of the words."""
        return cls(text, tuple((0, len(text), key) for key in keys))


def joined(first: tuple[int, Finding], second: tuple[int, Finding], words: Realiser) -> Statement:
    """Two certain findings in one sentence, each with its own change."""
    frame = words.pick([frame for frame in words.lexicon.full if frame.endswith("{np}")])
    noun, plural = words.noun(first[1])
    change = words.change(first[1])
    text = words.framed(frame, noun, plural)
    one = (len(text) - len(noun), len(text) + len(change), first[0])
    text += change + (", and " if change else " and ")
    other = words.noun(second[1])[0] + words.change(second[1])
    return Statement(text + other, (one, (len(text), len(text) + len(other), second[0])))
