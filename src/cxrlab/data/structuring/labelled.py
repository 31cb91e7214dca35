"""Does a translated report agree with the labels of its study? For text that the findings reader cannot read.

Every positive label must be read in the translation, and nothing may be read as certainly there whose
CheXpert observation no label allows. The tolerance, stated: a label that the vocabulary cannot
express is not looked for; an observation of a CheXpert parent or child of a positive or uncertain label is
allowed, as is one clouding of the lung for another (consolidation for pneumonia) and whatever counts towards
none of the fourteen; what the translation denies is not compared, since labels say only what is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from cxrlab.core.label_maps import LABEL_MAPS, Mapped
from cxrlab.core.records import Finding, Report, Study, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_CHILDREN, Certainty, observation
from cxrlab.data.structuring.validate import APPEARS, DISAPPEARS, reading_of
from cxrlab.findings.merge import merged

NORMAL = "No Finding"
# Names that readers give to the same clouding of the lung.
_CLOUDED = frozenset({"Lung Opacity", "Consolidation", "Pneumonia", "Atelectasis", "Edema"})
NOT_NORMAL = "a film labelled normal is not told as normal"


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
