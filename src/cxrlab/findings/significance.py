"""Clinical significance: the urgency of every observation, with its reason.

The class is that of a new radiograph read without further knowledge. Age, the degree of a finding, the place where a
device ends and the indication can change it. The tables are in significance.json. They are judgements in the sense of
a radiologist's call list, not measurements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, observation
from cxrlab.findings.data_files import load_data


class Urgency(StrEnum):
    """What a finding calls for, from most to least."""

    URGENT = "urgent"  # someone is called now
    ACTIONABLE = "actionable"  # treatment, a further test or a follow-up depends on it
    NOT_ACTIONABLE = "not actionable"  # worth reporting, changes nothing by itself
    BENIGN = "benign"  # expected or without consequence

    @property
    def rank(self) -> int:
        """0 for benign to 3 for urgent."""
        return len(Urgency) - 1 - list(Urgency).index(self)

    @property
    def matters(self) -> bool:
        """True where being wrong about it is likely to change what is done for the patient."""
        return self.rank >= Urgency.ACTIONABLE.rank


def urgency_of(finding: Finding, age: float | None = None, indication: str | None = None) -> Urgency:
    """The class of one finding: its observation's at this age in years, changed by a misplaced tip, degree or indication."""
    name = finding.observation
    if finding.tip is not None and (name, finding.tip) in MISPLACED:
        plain = MISPLACED[name, finding.tip][0]
    elif finding.severity is not None and (name, finding.severity) in DEGREE_RULES:
        plain = DEGREE_RULES[name, finding.severity][0]
    else:
        plain = urgency(name, age)
    if not indication:
        return plain
    steps = is_clinical_question(name, indication) - expected(name, indication)
    rank = min(max(plain.rank + steps, Urgency.BENIGN.rank), Urgency.URGENT.rank)
    return next(level for level in Urgency if level.rank == rank)


def urgency(name: str, age: float | None = None) -> Urgency:
    """The class of an observation of the vocabulary, at this age in years where it is known."""
    observation(name)
    if age is not None:
        for rule in AGE_RULES:
            if rule.observation == name and rule.least <= age < rule.below:
                return rule.urgency
    return CLASSES[name][0]


def is_clinical_question(name: str, indication: str | None) -> bool:
    """Whether this observation is what the radiograph was taken to look for."""
    return _among(CLINICAL_QUESTIONS, name, indication)


def expected(name: str, indication: str | None) -> bool:
    """Whether the reason for the radiograph explains this observation."""
    return _among(EXPECTED, name, indication)


def _among(rules: Sequence[IndicationRule], name: str, indication: str | None) -> bool:
    return any(name in rule.observations and indicates(INDICATIONS[rule.indication], indication) for rule in rules)


def indicates(words: tuple[str, ...], indication: str | None) -> bool:
    """Whether any of the words stands in the indication.

    Args:
        words: Lower-case words or phrases, found also in the plural; `*` at the end stands for any ending.
        indication: Text in any case; None holds no word.
    """
    return bool(indication) and _pattern(words).search(indication.lower()) is not None  # type: ignore[union-attr]


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    endings = (f"{re.escape(word[:-1])}\\w*" if word.endswith("*") else f"{re.escape(word)}s?" for word in words)
    return re.compile(rf"\b(?:{'|'.join(endings)})\b")


# ── significance.json ─────────────────────────────────────────────────────────────────────────────

Row = tuple[Urgency, str]  # a class and its reason


@dataclass(frozen=True)
class AgeRule:
    """The class of an observation at some ages."""

    observation: str  # a name of the vocabulary
    urgency: Urgency  # the class at these ages
    reason: str  # why age matters here
    least: float = 0.0  # years from which the rule holds
    below: float = math.inf  # years from which it holds no longer


@dataclass(frozen=True)
class IndicationRule:
    """An indication that makes findings matter one class more, or one class less."""

    indication: str  # a key of the table of indications
    observations: tuple[str, ...]  # what then matters more, or less
    reason: str  # why


@dataclass(frozen=True)
class SignificanceTables:
    """Content of significance.json."""

    # Observation → class. A device is expected in its place; a misplaced tip is another matter.
    classes: Mapping[str, Row]
    age_rules: tuple[AgeRule, ...]  # ages that change the class of an observation
    misplaced_tips: Mapping[str, Mapping[str, Row]]  # device → tip that is corrected at once, or soon → class
    degrees: Mapping[str, Mapping[Severity, Row]]  # observation → degree that changes its class → class
    indications: Mapping[str, tuple[str, ...]]  # name → words of an indication, in the notation of `indicates`
    clinical_questions: tuple[IndicationRule, ...]  # what an indication asks for counts one class higher
    expected: tuple[IndicationRule, ...]  # what an indication explains is known already and counts one class lower


_TABLES = load_data(Path(__file__).with_name("significance.json"), SignificanceTables)
CLASSES, AGE_RULES, INDICATIONS = _TABLES.classes, _TABLES.age_rules, _TABLES.indications
CLINICAL_QUESTIONS, EXPECTED = _TABLES.clinical_questions, _TABLES.expected
MISPLACED = {(name, tip): row for name, tips in _TABLES.misplaced_tips.items() for tip, row in tips.items()}
DEGREE_RULES = {(name, grade): row for name, grades in _TABLES.degrees.items() for grade, row in grades.items()}
