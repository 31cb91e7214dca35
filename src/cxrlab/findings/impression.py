"""The impression: what matters most, or that nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Group, Severity, observation
from cxrlab.findings.cases import Visit
from cxrlab.findings.grammar import capital, without_article
from cxrlab.findings.negatives import CALM
from cxrlab.findings.words import Words

# Always told, from this grade on where it has one.
ALWAYS: Mapping[str, Severity] = {
    "pneumothorax": Severity.MILD, "pneumoperitoneum": Severity.MILD, "mass": Severity.MILD, "cavity": Severity.MILD,
    "nodule": Severity.MILD, "pneumonia": Severity.MILD, "consolidation": Severity.MILD, "edema": Severity.MILD,
    "enlarged cardiomediastinum": Severity.MILD, "pleural effusion": Severity.MODERATE,
    "rib fracture": Severity.MILD, "clavicle fracture": Severity.MILD,
    "lung opacity": Severity.SEVERE, "hilar enlargement": Severity.SEVERE, "cardiomegaly": Severity.SEVERE,
}  # fmt: skip
MISPLACED = frozenset({"right main bronchus", "high", "distal esophagus"})
# Told as things of lesser importance, without the words for disease.
INCIDENTAL = CALM | {"low lung volumes"}
# How much a finding matters to the reader of the impression; what is not listed has 3.
WEIGHT: Mapping[str, int] = {
    "pneumothorax": 9, "pneumoperitoneum": 9, "mass": 8, "pneumonia": 7, "edema": 7, "consolidation": 7, "cavity": 7,
    "enlarged cardiomediastinum": 6, "pleural effusion": 6, "nodule": 6, "rib fracture": 5, "clavicle fracture": 5,
    "lung opacity": 5, "hilar enlargement": 5, "subcutaneous emphysema": 4, "cardiomegaly": 4, "atelectasis": 4,
    "low lung volumes": 1, "granuloma": 1, "scoliosis": 1, "aortic calcification": 1, "tortuous aorta": 1,
    "sternal wires": 0, "pacemaker": 1, "enteric tube": 1,
}  # fmt: skip


def weight(finding: Finding) -> float:
    """Importance: the kind of thing, more when new, worse, severe or a misplaced tube."""
    value = float(WEIGHT.get(finding.observation, 3))
    value += 1.5 * (finding.change in (Change.NEW, Change.INCREASED)) + 0.5 * (finding.severity is Severity.SEVERE)
    return value + 6 * (finding.tip in MISPLACED)


def always(finding: Finding) -> bool:
    """Whether no impression may leave this out."""
    least = ALWAYS.get(finding.observation)
    if least is None:
        return finding.tip in MISPLACED
    return finding.severity is None or finding.severity.rank >= least.rank


def grouped(present: Sequence[Finding]) -> list[tuple[Finding, ...]]:
    """The findings of each line: broken ribs of one side together, everything else by itself."""
    lines: dict[object, list[Finding]] = {}
    for index, finding in enumerate(present):
        ribs = (finding.side, finding.change, finding.certainty) if finding.observation == "rib fracture" else index
        lines.setdefault(ribs, []).append(finding)
    return [tuple(line) for line in lines.values()]


def calm(present: Sequence[Finding]) -> bool:
    """Whether nothing present is acute."""
    fresh = (Change.NEW, Change.INCREASED)
    return all(finding.observation in CALM and finding.change not in fresh for finding in present)


def impression(visit: Visit, words: Words) -> str:
    """Every finding that must be told and a few more, the most important first."""
    present = sorted(visit.present, key=lambda finding: (always(finding), weight(finding)), reverse=True)
    lines = grouped(present)
    count = max(sum(always(line[0]) for line in lines), 2 + int(words.rng.random() * 3))
    rows = [_line(line, words) for line in lines[:count]]
    gone = [finding for finding in visit.findings if not finding.present]
    if gone and words.chance(0.6 if not rows else 0.25):
        rows.append(words.resolved(max(gone, key=weight)))
    if not present:
        rows.append(words.pick(words.lexicon.impression_normal))
    elif calm(present) and words.chance(0.7):
        rows.append(words.pick(words.lexicon.impression_calm))
    numbered = len(rows) > 1 and words.chance(0.5)
    return " ".join(f"{f'{i}. ' if numbered else ''}{capital(row)}." for i, row in enumerate(rows, start=1))


def _line(findings: Sequence[Finding], words: Words) -> str:
    finding = findings[0]
    noun, plural = words.ribs(findings) if len(findings) > 1 else words.noun(finding)
    hedged = finding.certainty is Certainty.POSSIBLE
    if not hedged and words.chance(0.5):
        return without_article(noun) + words.change(finding)
    frame = words.pick(words.lexicon.hedged if hedged else words.lexicon.impression[_importance(finding)])
    return words.framed(frame, noun, plural) + words.change(finding)


def _importance(finding: Finding) -> str:
    if observation(finding.observation).group is Group.DEVICE:
        return "device"
    return "incidental" if finding.observation in INCIDENTAL else "disease"
