"""The impression: what matters most, or that nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Severity
from cxrlab.findings.cases import Visit
from cxrlab.findings.grammar import capital, without_article
from cxrlab.findings.negatives import CALM
from cxrlab.findings.words import Words

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
    return value + 6 * (finding.tip in ("right main bronchus", "distal esophagus"))


def calm(present: Sequence[Finding]) -> bool:
    """Whether nothing present is acute."""
    fresh = (Change.NEW, Change.INCREASED)
    return all(finding.observation in CALM and finding.change not in fresh for finding in present)


def impression(visit: Visit, words: Words) -> str:
    """One to five lines, the most important first."""
    present = sorted(visit.present, key=weight, reverse=True)
    rows = [_line(finding, words) for finding in present[: 2 + int(words.rng.random() * 3)]]
    gone = [finding for finding in visit.findings if not finding.present]
    if gone and words.chance(0.6 if not rows else 0.25):
        rows.append(words.resolved(max(gone, key=weight)))
    if not present:
        rows.append(words.pick(words.lexicon.impression_normal))
    elif calm(present) and words.chance(0.7):
        rows.append(words.pick(words.lexicon.impression_calm))
    numbered = len(rows) > 1 and words.chance(0.5)
    return " ".join(f"{f'{i}. ' if numbered else ''}{capital(row)}." for i, row in enumerate(rows, start=1))


def _line(finding: Finding, words: Words) -> str:
    noun, plural = words.noun(finding)
    hedged = finding.certainty is Certainty.POSSIBLE
    if not hedged and words.chance(0.5):
        return without_article(noun) + words.change(finding)
    frame = words.pick(words.lexicon.hedged if hedged else words.lexicon.impression)
    return words.framed(frame, noun, plural) + words.change(finding)
