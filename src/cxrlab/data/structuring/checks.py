"""Check with the findings reader that a rewritten report states the same findings as its source.

The findings of both texts, without their change over time, must agree in side, place, degree, size and tip. What has
resolved counts as absent, so `the effusion has resolved` may become `no effusion`. Further checks look at the words:
mentions of an earlier image, age and sex, advice, numbers, and sections that the source does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from cxrlab.core.label_maps import LABEL_MAPS, LabelMapping
from cxrlab.core.records import Finding, Report, Study, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_CHILDREN, Certainty, observation
from cxrlab.data.structuring.sentences import (
    ADVISES,
    SPEAKS_OF_EARLIER,
    mentions_demographics,
    mentions_history,
    mentions_masked_age,
    split,
)
from cxrlab.findings.merge_statements import merged, same_place, same_side, side_by_side
from cxrlab.findings.reader import Reading, read

APPEARS = "a finding appears"
DISAPPEARS = "a finding disappears"
DENIAL_APPEARS = "a denial appears"
DENIAL_DISAPPEARS = "a denial disappears"
CERTAINTY = "the certainty differs"
SIDE = "the side differs"
PLACE = "the place differs"
DEGREE = "the degree differs"
SIZE = "the size differs"
TIP = "the tip of a device differs"
COMPARES = "it mentions an earlier image"
STABLE = "it calls something stable"
PATIENT = "it mentions age or sex"
MASKED_AGE = "the indication mentions a masked age"
# What the examples of LLaVA-Rad's supplement keep: doubted, never refused.
FLAGGED = (STABLE, MASKED_AGE)
HISTORY = "it mentions history beside the indication"
NUMBER = "a number appears"
SPEAKS = "it mentions an image that the source does not mention"
NORMAL_APPEARS = "a normal statement appears"
NORMAL_DISAPPEARS = "a normal statement is left out"
ADVICE_APPEARS = "advice appears"
ADVICE_DISAPPEARS = "advice disappears"
SECTION = "a section appears that the source does not have"

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W\d_]{3,}")
_STABLE = re.compile(r"\bstable\b(?!,? since\b)", re.I)
# Sizes written in another unit or rounded on the way are the same below this, in millimetres.
_SAME_SIZE = 0.51


@lru_cache(maxsize=4096)
def _read(text: str) -> Reading:
    return read(text)


def reading_of(report: Report) -> Reading:
    """The findings of findings and impression, read as one text."""
    return _read("\n\n".join(text for text in (report.findings, report.impression) if text))


def violations(source: Report, answer: Report) -> tuple[str, ...]:
    """What is wrong with an answer: fixed kinds with their observation; empty when nothing is."""
    before, after = reading_of(source), reading_of(answer)
    found = [*differences(before, after), *faults(answer), *_elsewhere(source, answer)]
    # "No change" calls nothing normal.
    normal, still = (
        _any(report, lambda sentence: bool(_read(sentence).normal) and not compares(sentence))
        for report in (source, _without_stable(answer))
    )
    checks = (
        (SPEAKS, after.has_statements and not before.has_statements),
        (NORMAL_APPEARS, still and not _any(source, lambda sentence: bool(_read(sentence).normal))),
        (NORMAL_DISAPPEARS, normal and not still),
        (ADVICE_APPEARS, _any(answer, _advises) and not _any(source, _advises)),
        (ADVICE_DISAPPEARS, _any(source, _advises) and not _any(answer, _advises)),
        (NUMBER, bool(numbers(*answer.to_json().values()) - numbers(*source.to_json().values()))),
    )
    return tuple(dict.fromkeys((*found, *(kind for kind, holds in checks if holds))))


def faults(answer: Report) -> tuple[str, ...]:
    """Faults of a structured report, whatever its source: a comparison, demographics or a history."""
    timeless, masked = _without_stable(answer), mentions_masked_age(answer)
    found = [f"{COMPARES}: {finding.observation}" for finding in reading_of(timeless) if finding.change is not None]
    checks = (
        (COMPARES, not found and bool(comparing(timeless))),
        (STABLE, timeless != answer),
        (MASKED_AGE, masked),
        (PATIENT, mentions_demographics(replace(answer, indication=None) if masked else answer)),
        (HISTORY, mentions_history(answer)),
    )
    return tuple(dict.fromkeys((*found, *(kind for kind, holds in checks if holds))))


def _without_stable(report: Report) -> Report:
    """The report with `present` in place of `stable`, which may be a state of this image alone."""
    texts = {name: report.section(name) for name in ("findings", "impression")}
    return replace(report, **{name: text and _STABLE.sub("present", text) for name, text in texts.items()})


def comparing(report: Report) -> list[str]:
    """The sentences of findings and impression that mention an earlier image, except advice."""
    return [one for one in _sentences(report) if compares(one)]


def compares(sentence: str) -> bool:
    """Whether a sentence mentions an earlier image, by its findings or by its words."""
    if any(finding.change is not None for finding in _read(sentence)):
        return True
    return bool(SPEAKS_OF_EARLIER.search(sentence)) and not _advises(sentence)


def _sentences(report: Report) -> list[str]:
    return [one for text in (report.findings, report.impression) if text for one in split(text)]


def _any(report: Report, test: Callable[[str], bool]) -> bool:
    return any(map(test, _sentences(report)))


def _advises(sentence: str) -> bool:
    return bool(ADVISES.search(sentence))


def _elsewhere(source: Report, answer: Report) -> Iterable[str]:
    """Findings and sections in examination and indication that the source does not have."""
    known = {finding.observation for text in source.to_json().values() if text for finding in _read(text)}
    words = _words(*source.to_json().values())
    for name in ("examination", "indication"):
        text = answer.section(name)
        own = _words(text)
        if own <= words:
            continue  # nothing but words of the source
        for finding in _read(text or ""):
            if finding.present and finding.observation not in known:
                yield _named(APPEARS, finding)
        if not source.section(name) and 2 * len(own & words) < len(own):
            yield SECTION


def differences(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[str, ...]:
    """How two lists of findings differ, their change over time aside; empty when they agree."""
    ours, theirs = side_by_side(_timeless(before), _timeless(after))
    found: list[str] = []
    left = list(theirs)
    for thing in ours:
        # The other text's statement on the same thing: an equal one, else a near one, else one of the same observation.
        same = [one for one in left if one.observation == thing.observation and one.presence is thing.presence]
        near = [one for one in same if same_side(one.side, thing.side) and same_place(one.location, thing.location)]
        equal = [one for one in same if not any(_attributes(thing, one))]
        match = next(iter((*equal, *near, *same)), None)
        if match is None:
            found.append(_named(DISAPPEARS if thing.present else DENIAL_DISAPPEARS, thing))
        else:
            left.remove(match)
            found.extend(_named(kind, thing) for kind in _attributes(thing, match))
    found.extend(_named(APPEARS if thing.present else DENIAL_APPEARS, thing) for thing in left)
    return tuple(dict.fromkeys(found))


def _timeless(findings: Iterable[Finding]) -> list[Finding]:
    return [replace(finding, change=None, span=None) for finding in findings]


def _named(kind: str, thing: Finding) -> str:
    return f"{kind}: {thing.observation}"


def _attributes(one: Finding, other: Finding) -> Iterable[str]:
    """Kinds of attribute that differ between two statements on one thing."""
    if one.side is not other.side:
        yield SIDE
    if not one.present:
        return  # an absent finding has no degree and place
    if one.certainty is not other.certainty:
        yield CERTAINTY
    if (one.location is None) != (other.location is None) or not same_place(one.location, other.location):
        yield PLACE
    if one.severity is not other.severity:
        yield DEGREE
    if not _same_number(one.size_mm, other.size_mm):
        yield SIZE
    if one.tip != other.tip or not _same_number(one.tip_mm, other.tip_mm):
        yield TIP


def _same_number(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _SAME_SIZE


def numbers(*texts: str | None) -> set[float]:
    """Every number of some texts, those of lists left out."""
    sentences = (one for text in texts if text for one in split(text))
    return {float(word) for sentence in sentences for word in _NUMBER.findall(sentence)}


def _words(*texts: str | None) -> set[str]:
    return {word for text in texts if text for word in _WORD.findall(text.lower())}


NORMAL = "No Finding"
# Names for the same opacity of the lung.
_CLOUDED = frozenset({"Lung Opacity", "Consolidation", "Pneumonia", "Atelectasis", "Edema"})
NOT_NORMAL = "an image labelled normal is not reported as normal"
# Left and right, also within the abbreviations of lobes (LSI, LID) and sides of the chest (HTI); stems, since PadChest
# gives its reports in stems.
_SIDES: Mapping[str, tuple[re.Pattern[str], re.Pattern[str]]] = MappingProxyType(
    {
        "en": (
            re.compile(r"\b(?:left|l[ul]l|lingula\w*)\b", re.I),
            re.compile(r"\b(?:right|r[uml]l|middle lobe)\b", re.I),
        ),
        "es": (
            re.compile(r"\b(?:izq\w*|izd\w*|l[si]i|hti|lingul\w*|língul\w*)\b", re.I),
            re.compile(r"\b(?:derech\w*|dch\w*|l[si]d|lm|htd|lobul\w* medi\w*|lóbul\w* medi\w*)\b", re.I),
        ),
    }
)
_BOTH = re.compile(r"bilateral|\bamb[oa]s?\b|\bboth\b|\bbi(?:bas|ap)\w+", re.I)


def label_violations(study: Study, corpus: str, answer: Report) -> tuple[str, ...]:
    """What contradicts the labels of a study: its own by the corpus's label map, else the CheXpert labels."""
    things = [thing for thing in merged(reading_of(answer)) if thing.present]
    # Positive labels and what they mean; the corpus's own where its map knows them, else CheXpert's.
    rows = LABEL_MAPS.get(corpus, {})
    own = {name: rows[name] for name, value in study.own_labels.items() if value == 1 and name in rows}
    promised = own or {name: LabelMapping(chexpert=name) for name, value in study.labels.items() if value == 1}
    found = [f"{DISAPPEARS}: {name}" for name, row in promised.items() if not _is_stated(row, things)]
    if any(row.label == NORMAL for row in promised.values()):
        if chexpert_labels(things, complete=False).get(NORMAL) != 1:
            found.append(NOT_NORMAL)
        return tuple(found)
    # CheXpert observations that may be read: those of the labels, with their parents and children.
    named = {name for name, value in study.labels.items() if value}
    for row in promised.values():
        named |= {row.label} if row.label else set()
        named |= {label for name in row.observations if (label := observation(name).chexpert)}
    parents = {parent for parent, children in CHEXPERT_CHILDREN.items() if named & set(children)}
    children = {child for name in named for child in CHEXPERT_CHILDREN.get(name, ())}
    allowed = named | parents | children | (_CLOUDED if named & _CLOUDED else set())
    for thing in things:
        label = observation(thing.observation).chexpert
        if thing.certainty is Certainty.CERTAIN and label is not None and label not in allowed:
            found.append(f"{APPEARS}: {thing.observation}")
    return tuple(dict.fromkeys(found))


def translation_violations(text: str, language: str, answer: Report) -> tuple[str, ...]:
    """A number or a side of a translation that its source lacks, or a side lost; sides by language."""
    translation = "\n".join(section for section in answer.to_json().values() if section)
    found = [NUMBER] if numbers(translation) - numbers(text) else []
    if language in _SIDES:
        pairs = zip(_SIDES[language], _SIDES["en"], strict=True)
        named = [(bool(theirs.search(text)), bool(ours.search(translation))) for theirs, ours in pairs]
        turned = [theirs for theirs, _ in named] == [ours for _, ours in reversed(named)]
        # "Bilateral" may become "left and right"; a single side must not change, appear or disappear.
        if any(theirs != ours for theirs, ours in named) and (turned or not _BOTH.search(text + translation)):
            found.append(SIDE)
    return tuple(found)


def has_labels(study: Study) -> bool:
    """Whether there is anything to check a translation against."""
    return bool(study.own_labels or study.labels)


def _is_stated(row: LabelMapping, things: Iterable[Finding]) -> bool:
    """Whether a finding that the label may mean is there; a label without any observation is not checked."""
    if row.observations:
        return any(thing.observation in row.observations for thing in things)
    if row.chexpert is None or row.chexpert == NORMAL:
        return True
    wanted = {row.chexpert, *CHEXPERT_CHILDREN.get(row.chexpert, ())}
    return any(observation(thing.observation).chexpert in wanted for thing in things)
