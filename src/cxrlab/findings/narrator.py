"""Writes a report from the findings of a visit, in words that vary with the name of the study.

Everything present is stated once in the findings section, with side, degree, place, size, tip and change. What is
possible is hedged; what has resolved is reported as resolved. A varied choice of true negatives is added. The same
visit under another name has other words and the same findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, Report
from cxrlab.core.vocabulary import Certainty, Change, Group, Presence, Severity, observation
from cxrlab.findings.lexicon import capital, interval, load_lexicon, without_article
from cxrlab.findings.negative_statements import CHRONIC, NegativeStatements, region_of
from cxrlab.findings.realiser import Realiser, Statement, joined
from cxrlab.findings.simulated_patients import Visit


@dataclass(frozen=True)
class Narration:
    """A report and the findings that its text states."""

    report: Report  # all five sections
    # The visit's findings in order, each with its span in `report.findings`; then every negative that the text states,
    # presence absent, with the span of its own words.
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Style:
    """One manner of reporting."""

    fragment: bool = False  # noun phrases instead of sentences
    headed: bool = False  # a heading for each region
    numbered: bool = False  # a number before each sentence
    normal: float = 0.5  # share of untouched regions that are called normal
    denial: float = 0.85  # chance of a list of pertinent negatives
    join: float = 0.0  # chance that two findings of one region share a sentence
    opened: bool = False  # a first sentence that says how the radiograph was taken
    orders: tuple[tuple[str, ...], ...] = field(default=())  # orders of the regions, one of which is taken


_LUNGS_FIRST = ("lungs", "pleura", "heart", "mediastinum", "abdomen", "bones", "lines")
_HEART_FIRST = ("heart", "mediastinum", "lungs", "pleura", "bones", "abdomen", "lines")
_DEVICES_FIRST = ("lines", "lungs", "pleura", "heart", "mediastinum", "abdomen", "bones")
_DEVICES_THEN_HEART = ("lines", "heart", "mediastinum", "lungs", "pleura", "abdomen", "bones")
_PLEURA_FIRST = ("pleura", "lungs", "heart", "mediastinum", "bones", "abdomen", "lines")

STYLES = {
    "prose": Style(normal=0.55, join=0.4, orders=(_LUNGS_FIRST, _HEART_FIRST, _PLEURA_FIRST, _DEVICES_FIRST)),
    "terse": Style(fragment=True, normal=0.3, denial=0.9, orders=(_LUNGS_FIRST, _PLEURA_FIRST, _HEART_FIRST)),
    "systematic": Style(headed=True, normal=0.85, denial=0.6, join=0.3, orders=(_LUNGS_FIRST, _HEART_FIRST)),
    "numbered": Style(numbered=True, normal=0.3, orders=(_LUNGS_FIRST, _HEART_FIRST, _DEVICES_FIRST)),
    "portable": Style(normal=0.35, join=0.2, opened=True, orders=(_DEVICES_FIRST, _DEVICES_THEN_HEART)),
}


def narrate(visit: Visit, seed: int, name: str, lexicon: str = "A") -> Narration:
    """Write the report of one visit.

    Args:
        name: Id of the study; it picks the words.
        lexicon: "A" for training text, "B" for the held-out one.
    """
    words = Realiser(load_lexicon(lexicon), generator(seed, "narrator", lexicon, name))
    portable = visit.view.value == "AP"
    names = [name for name in STYLES if portable or name != "portable"]
    style = STYLES[words.pick(names)]
    sentences = _sentences(visit, style, words)
    stated, denied = dict(enumerate(visit.findings)), []
    text = region = ""
    for number, sentence in enumerate(sentences, start=1):
        if style.headed and sentence.region and sentence.region != region:
            region = sentence.region
            lead = f"{words.pick(words.lexicon.headings[region])}: "
        else:
            lead = f"{number}. " if style.numbered and len(sentences) > 1 else ""
        text += (" " if text else "") + lead
        for start, end, key in sentence.marks:
            span = (len(text) + start, len(text) + end)
            if isinstance(key, int):
                stated[key] = replace(stated[key], span=span)
            else:
                denied.append(Finding(key, presence=Presence.ABSENT, span=span))
        text += capital(sentence.text) + "."
    examination = words.pick(words.lexicon.examinations[visit.view.value])
    person = {"F": "woman", "M": "man"}[visit.sex]
    template = words.pick(words.lexicon.indications[visit.context])
    if visit.days_since_prior is None:
        comparison = words.pick(words.lexicon.no_comparison)
    else:
        comparison = words.pick(words.lexicon.comparisons).replace("{ago}", interval(visit.days_since_prior))
    report = Report(
        examination=examination,
        indication=capital(template.replace("{age}", str(visit.age)).replace("{person}", person)) + ".",
        comparison=comparison + ".",
        findings=text,
        impression=impression(visit, words),
    )
    return Narration(report, (*stated.values(), *denied))


def _sentences(visit: Visit, style: Style, words: Realiser) -> list[Statement]:
    """Every sentence of the findings section in the order of the text."""
    denier = NegativeStatements(visit, words)
    by_region: dict[str, list[Statement]] = {}
    for region in words.pick(style.orders):
        stated = [(i, f) for i, f in enumerate(visit.findings) if region_of(f.observation) == region]
        by_region[region] = _region(stated, style, words)
        untouched = not by_region[region]
        if words.chance(style.normal if untouched else 0.35 * style.normal):
            by_region[region].extend(denier.normal(region))
        if style.headed and words.chance(style.denial):
            by_region[region].extend(denier.denial([region], most=2))
    sentences = [replace(s, region=region) for region, rows in by_region.items() for s in rows]
    if not style.headed and words.chance(style.denial):
        extra = denier.denial(list(by_region), most=4)
        sentences = [*extra, *sentences] if words.chance(0.2) else [*sentences, *extra]
    if not visit.present:
        sentences = denier.whole(sentences, headed=style.headed)
    if style.opened and words.chance(0.7):
        sentences.insert(0, Statement(words.pick(words.lexicon.openers)))
    return sentences


def _region(stated: Sequence[tuple[int, Finding]], style: Style, words: Realiser) -> list[Statement]:
    """The statements on one region's findings, present ones first, some of them joined."""
    rows: list[Statement] = []
    waiting = [pair for pair in stated if pair[1].present]
    if words.chance(0.5):
        waiting.reverse()
    while waiting:
        first = waiting.pop(0)
        partner = waiting[0] if waiting and words.chance(style.join) else None
        if partner and all(f.certainty is Certainty.CERTAIN for _, f in (first, partner)):
            rows.append(joined(first, waiting.pop(0), words))
        else:
            rows.append(Statement.whole(words.present(first[1], fragment=style.fragment), first[0]))
    rows.extend(Statement.whole(words.resolved(f), i) for i, f in stated if not f.present)
    return rows


# Always stated, from this grade on where it has one.
ALWAYS: Mapping[str, Severity] = {
    "pneumothorax": Severity.MILD, "pneumoperitoneum": Severity.MILD, "mass": Severity.MILD, "cavity": Severity.MILD,
    "nodule": Severity.MILD, "pneumonia": Severity.MILD, "consolidation": Severity.MILD, "edema": Severity.MILD,
    "enlarged cardiomediastinum": Severity.MILD, "pleural effusion": Severity.MODERATE,
    "rib fracture": Severity.MILD, "clavicle fracture": Severity.MILD,
    "lung opacity": Severity.SEVERE, "hilar enlargement": Severity.SEVERE, "cardiomegaly": Severity.SEVERE,
}  # fmt: skip
MISPLACED = frozenset({"right main bronchus", "high", "distal esophagus"})
# Worded as things of lesser importance, without the words for disease.
INCIDENTAL = CHRONIC | {"low lung volumes"}
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
    """Whether every impression must state this."""
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


def nothing_acute(present: Sequence[Finding]) -> bool:
    """Whether nothing present is acute."""
    fresh = (Change.NEW, Change.INCREASED)
    return all(finding.observation in CHRONIC and finding.change not in fresh for finding in present)


def impression(visit: Visit, words: Realiser) -> str:
    """Every finding that must be stated and a few more, the most important first."""
    present = sorted(visit.present, key=lambda finding: (always(finding), weight(finding)), reverse=True)
    lines = grouped(present)
    count = max(sum(always(line[0]) for line in lines), 2 + int(words.rng.random() * 3))
    rows = [_line(line, words) for line in lines[:count]]
    gone = [finding for finding in visit.findings if not finding.present]
    if gone and words.chance(0.6 if not rows else 0.25):
        rows.append(words.resolved(max(gone, key=weight)))
    if not present:
        rows.append(words.pick(words.lexicon.impression_normal))
    elif nothing_acute(present) and words.chance(0.7):
        rows.append(words.pick(words.lexicon.impression_nothing_acute))
    numbered = len(rows) > 1 and words.chance(0.5)
    return " ".join(f"{f'{i}. ' if numbered else ''}{capital(row)}." for i, row in enumerate(rows, start=1))


def _line(findings: Sequence[Finding], words: Realiser) -> str:
    finding = findings[0]
    noun, plural = words.ribs(findings) if len(findings) > 1 else words.noun(finding)
    hedged = finding.certainty is Certainty.POSSIBLE
    if not hedged and words.chance(0.5):
        return without_article(noun) + words.change(finding)
    kind = "incidental" if finding.observation in INCIDENTAL else "disease"
    if observation(finding.observation).group is Group.DEVICE:
        kind = "device"
    frame = words.pick(words.lexicon.hedged if hedged else words.lexicon.impression[kind])
    return words.framed(frame, noun, plural) + words.change(finding)
