"""Does a translated report agree with the labels of its study? For text that the findings reader cannot read.

Every positive label must be read in the translation, and nothing may be read as certainly there whose
CheXpert observation no label allows. The tolerance, stated: a label that the vocabulary cannot
express is not looked for; an observation of a CheXpert parent or child of a positive or uncertain label is
allowed, as is one clouding of the lung for another (consolidation for pneumonia) and whatever counts towards
none of the fourteen; what the translation denies is not compared, since labels say only what is there.

Some of a translation can be seen in the source's words: its numbers, and, in Spanish, the sides. A side that one
text never names and the other does is a violation; two sides exchanged within a report are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cxrlab.core.label_maps import LABEL_MAPS, Mapped
from cxrlab.core.records import Finding, Report, Study, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_CHILDREN, Certainty, observation
from cxrlab.data.structuring.validate import APPEARS, DISAPPEARS, NUMBER, SIDE, numbers, reading_of
from cxrlab.findings.merge import merged

NORMAL = "No Finding"
# Names that readers give to the same clouding of the lung.
_CLOUDED = frozenset({"Lung Opacity", "Consolidation", "Pneumonia", "Atelectasis", "Edema"})
NOT_NORMAL = "a film labelled normal is not told as normal"
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
    """What a translation says against the labels of its study; empty when nothing.

    Args:
        study: With `own_labels` or `labels`.
        corpus: Name of the corpus, for its label map; without one the fourteen CheXpert labels are used.
        answer: The translated sections.
    """
    things = [thing for thing in merged(reading_of(answer)) if thing.present]
    promised = _promised(study, corpus)
    found = [f"{DISAPPEARS}: {name}" for name, row in promised.items() if not _told(row, things)]
    if any(row.label == NORMAL for row in promised.values()):
        if chexpert_labels(things, complete=False).get(NORMAL) != 1:
            found.append(NOT_NORMAL)
        return tuple(found)
    allowed = _allowed(study, promised.values())
    for thing in things:
        towards = observation(thing.observation).chexpert
        if thing.certainty is Certainty.CERTAIN and towards is not None and towards not in allowed:
            found.append(f"{APPEARS}: {thing.observation}")
    return tuple(dict.fromkeys(found))


def translation_violations(text: str, language: str, answer: Report) -> tuple[str, ...]:
    """What a translation says against the words of its source: a number or a side that is not there, or a side lost.

    Args:
        text: The source.
        language: Its code; sides are compared for those whose words are known.
        answer: The translated sections.
    """
    told = "\n".join(section for section in answer.to_json().values() if section)
    found = [NUMBER] if numbers(told) - numbers(text) else []
    if language in _SIDES:
        pairs = zip(_SIDES[language], _SIDES["en"], strict=True)
        named = [(bool(theirs.search(text)), bool(ours.search(told))) for theirs, ours in pairs]
        turned = [theirs for theirs, _ in named] == [ours for _, ours in reversed(named)]
        # "Bilateral" may become "left and right"; one side alone may neither turn nor come nor go.
        if any(theirs != ours for theirs, ours in named) and (turned or not _BOTH.search(text + told)):
            found.append(SIDE)
    return tuple(found)


def has_labels(study: Study) -> bool:
    """Whether there is anything to check a translation against."""
    return bool(study.own_labels or study.labels)


def _promised(study: Study, corpus: str) -> dict[str, Mapped]:
    """Positive labels and what they mean; the corpus's own where its map knows them, else CheXpert's."""
    rows = LABEL_MAPS.get(corpus, {})
    own = {name: rows[name] for name, value in study.own_labels.items() if value == 1 and name in rows}
    return own or {name: Mapped(chexpert=name) for name, value in study.labels.items() if value == 1}


def _told(row: Mapped, things: Iterable[Finding]) -> bool:
    """Whether something that the label may mean is read; what no word expresses is not looked for."""
    if row.observations:
        return any(thing.observation in row.observations for thing in things)
    if row.chexpert is None or row.chexpert == NORMAL:
        return True
    wanted = {row.chexpert, *CHEXPERT_CHILDREN.get(row.chexpert, ())}
    return any(observation(thing.observation).chexpert in wanted for thing in things)


def _allowed(study: Study, promised: Iterable[Mapped]) -> set[str]:
    """CheXpert observations that may be read: those of the labels, with their parents and children."""
    named = {name for name, value in study.labels.items() if value}
    for row in promised:
        named |= {row.label} if row.label else set()
        named |= {towards for name in row.observations if (towards := observation(name).chexpert)}
    parents = {parent for parent, children in CHEXPERT_CHILDREN.items() if named & set(children)}
    children = {child for name in named for child in CHEXPERT_CHILDREN.get(name, ())}
    return named | parents | children | (_CLOUDED if named & _CLOUDED else set())
