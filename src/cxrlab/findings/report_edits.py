"""Edits of one report that test metrics: a harmful edit must lower the score, a harmless one must not.

Every edit starts from a narrated report whose findings and their characters are known, so that it
changes exactly one thing. A harmful edit is always clinically significant and about a finding that
matters; where the report offers nothing to edit the answer is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, ErrorKind
from cxrlab.findings.lexicon import capital, load_lexicon, without_article
from cxrlab.findings.narrator import narrate
from cxrlab.findings.negative_statements import NORMAL, circumstances, deniable
from cxrlab.findings.planted_errors import PlantedError, draw_error_plan, possible_errors, significant
from cxrlab.findings.realiser import Realiser
from cxrlab.findings.relatedness import relatedness
from cxrlab.findings.simulated_patients import Visit

LEXICON, OTHER_LEXICON = "A", "B"
# Tries to find words that serve the sentence before and after the edit alike.
TRIES = 12
# A sentence ends where a full stop is followed by a space and a capital: "2.4 cm" and "1. " do not.
_BETWEEN = re.compile(r"(?<=[a-z)]\.) (?=[A-Z])")
_LEAD = re.compile(r"(?:^|(?<= ))(?:\d+\. )?$")


@dataclass(frozen=True)
class NarratedVisit:
    """A visit and its report."""

    visit: Visit  # the truth
    seed: int  # seed of the words
    name: str  # id of the case; it picks the words
    text: str  # the findings section
    findings: tuple[Finding, ...]  # the visit's findings with their spans in `text`
    denied: frozenset[str]  # observations that `text` calls absent

    @classmethod
    def of(cls, visit: Visit, seed: int, name: str) -> NarratedVisit:
        """Narrates a visit in lexicon A."""
        narration = narrate(visit, seed, name, LEXICON)
        stated = narration.findings[: len(visit.findings)]
        absent = frozenset(finding.observation for finding in narration.findings[len(stated) :])
        return cls(visit, seed, name, narration.report.findings or "", stated, absent)

    @property
    def rng(self) -> np.random.Generator:
        """The same stream each time."""
        return generator(self.seed, "edit", self.name)

    @property
    def sentences(self) -> tuple[Finding, ...]:
        """Certain, present findings that have a sentence to themselves and a kind that no other finding has."""
        names = [finding.observation for finding in self.findings]
        return tuple(
            finding
            for finding in self.findings
            if finding.present
            and finding.certainty is Certainty.CERTAIN
            and names.count(finding.observation) == 1
            and self._alone(finding)
        )

    def _alone(self, finding: Finding) -> bool:
        start, end = finding.span or (0, 0)
        before = self.text[:start]
        return self.text[end : end + 1] == "." and (not before or before.endswith((". ", ": ")))

    def rest(self, finding: Finding) -> tuple[Finding, ...]:
        """The other present findings."""
        return tuple(other for other in self.findings if other.present and other is not finding)

    def with_sentence(self, finding: Finding, sentence: str) -> str:
        """The text with another sentence in place of the finding's own."""
        start, end = finding.span or (0, 0)
        return self.text[:start] + capital(sentence) + self.text[end:]

    def without_sentence(self, finding: Finding) -> str | None:
        """The text without the finding's sentence and its number; None where a heading would stand bare."""
        start, end = finding.span or (0, 0)
        before, after = self.text[:start], self.text[end + 1 :]
        if before.endswith(": "):
            return None
        return (_LEAD.sub("", before).rstrip() + after).strip()


@dataclass(frozen=True)
class Edited:
    """A report before and after the edit."""

    reference: str
    candidate: str


Edit = Callable[[NarratedVisit], Edited | None]


# ── harmful ───────────────────────────────────────────────────────────────────────────────────────


def negation_flip(narrated: NarratedVisit) -> Edited | None:
    """A sentence that something is there becomes one that it is not."""
    for finding in narrated.sentences:
        names = circumstances(narrated.rest(finding))
        if _matters(narrated, finding) and deniable(finding.observation, names):
            words = Realiser(load_lexicon(LEXICON), narrated.rng)
            name = words.pick(words.lexicon.observations[finding.observation].absent).removeprefix("+ ")
            return Edited(narrated.text, narrated.with_sentence(finding, f"no {without_article(name)}"))
    return None


def side_flip(narrated: NarratedVisit) -> Edited | None:
    """Left becomes right, or right left."""
    return _single_error(narrated, lambda was, now: was.side is not now.side)


def severity_flip(narrated: NarratedVisit) -> Edited | None:
    """Mild becomes severe, or severe mild."""
    return _single_error(narrated, lambda was, now: was.severity is not now.severity)


def measurement_change(narrated: NarratedVisit) -> Edited | None:
    """A size is doubled or halved."""
    return _single_error(narrated, lambda was, now: was.size_mm != now.size_mm)


def omission(narrated: NarratedVisit) -> Edited | None:
    """A sentence is taken out, and nothing that is left could stand for it."""
    for finding in narrated.sentences:
        near = any(relatedness(finding.observation, other.observation) for other in narrated.rest(finding))
        text = narrated.without_sentence(finding)
        if text and not near and _matters(narrated, finding):
            return Edited(narrated.text, text)
    return None


def invention(narrated: NarratedVisit) -> Edited | None:
    """A sentence is added on something that is not there and that nothing in the report denies."""
    for mistake in draw_error_plan(narrated.rng, narrated.visit, count=6).mistakes:
        new = mistake.candidate
        if mistake.kind is not ErrorKind.FALSE_FINDING or new is None or not significant(mistake, narrated.visit.age):
            continue
        # Whether a report that denies these observations also rules out the finding.
        names = set(narrated.denied)
        there = circumstances([new])
        normal = [row for row in NORMAL.values() if names.issuperset(row.states)]
        if not (any(there & set(row.requires) for row in normal) or any(not deniable(name, there) for name in names)):
            return Edited(narrated.text, f"{narrated.text} {capital(_sentence(new, narrated))}.")
    return None


def _matters(narrated: NarratedVisit, finding: Finding) -> bool:
    return significant(PlantedError(ErrorKind.OMITTED_FINDING, finding, None), narrated.visit.age)


def _single_error(narrated: NarratedVisit, wanted: Callable[[Finding, Finding], bool]) -> Edited | None:
    """The first significant error of the wanted kind, with one sentence that differs in nothing else."""
    for finding in narrated.sentences:
        for mistake in possible_errors(finding) if _matters(narrated, finding) else ():
            changed = mistake.candidate
            if changed is not None and wanted(finding, changed) and significant(mistake, narrated.visit.age):
                for attempt in range(
                    TRIES
                ):  # until both sentences have equally many words and differ in the slip alone
                    pair = tuple(_sentence(one, narrated, attempt) for one in (finding, changed))
                    before, after = (sentence.split() for sentence in pair)
                    # An article may change with the word after it: "a mild", "an extensive".
                    apart = [a for a, b in zip(before, after, strict=False) if a != b and a not in ("a", "an")]
                    if len(before) == len(after) and 1 <= len(apart) <= 2:
                        return Edited(*(narrated.with_sentence(finding, sentence) for sentence in pair))
    return None


def _sentence(finding: Finding, narrated: NarratedVisit, attempt: int = 0) -> str:
    rng = generator(narrated.seed, "sentence", narrated.name, attempt)
    return Realiser(load_lexicon(LEXICON), rng).present(finding, fragment=False)


# ── harmless ──────────────────────────────────────────────────────────────────────────────────────


def paraphrase(narrated: NarratedVisit) -> Edited:
    """The same visit in the words of the other lexicon."""
    other = narrate(narrated.visit, narrated.seed, f"{narrated.name}/again", OTHER_LEXICON)
    return Edited(narrated.text, other.report.findings or "")


def casing(narrated: NarratedVisit) -> Edited:
    """All capitals, or none."""
    return Edited(narrated.text, narrated.text.upper() if narrated.rng.random() < 0.5 else narrated.text.lower())


def sentence_order(narrated: NarratedVisit) -> Edited | None:
    """The sentences in another order; None for numbered or headed text, whose order means something."""
    parts = _BETWEEN.split(narrated.text)
    if len(parts) < 2 or re.search(r"^\d+\. |[a-z]: ", narrated.text):
        return None
    order = narrated.rng.permutation(len(parts)).tolist()
    order = order if order != sorted(order) else order[::-1]
    return Edited(narrated.text, " ".join(parts[index] for index in order))


def mask_tokens(narrated: NarratedVisit) -> Edited:
    """De-identification marks before the text, between its sentences and after it."""
    mask = "XXXX" if narrated.rng.random() < 0.5 else "___"
    parts = _BETWEEN.split(narrated.text)
    return Edited(narrated.text, f"{mask} " + f" {mask} ".join(parts) + f" {mask}.")


@dataclass(frozen=True)
class EditRow:
    """One edit and what a metric must do: fall, or stay where it is."""

    edit: Edit
    must_fall: bool


EDITS: Mapping[str, EditRow] = {
    "negation flip": EditRow(negation_flip, must_fall=True),
    "side flip": EditRow(side_flip, must_fall=True),
    "severity flip": EditRow(severity_flip, must_fall=True),
    "measurement change": EditRow(measurement_change, must_fall=True),
    "omission": EditRow(omission, must_fall=True),
    "invention": EditRow(invention, must_fall=True),
    "paraphrase": EditRow(paraphrase, must_fall=False),
    "casing": EditRow(casing, must_fall=False),
    "sentence order": EditRow(sentence_order, must_fall=False),
    "mask tokens": EditRow(mask_tokens, must_fall=False),
}
