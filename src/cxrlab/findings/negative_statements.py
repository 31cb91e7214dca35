"""Chooses the true negatives of a report: normal statements by region and lists of what is absent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Group, Severity, Side, observation
from cxrlab.findings.lexicon import agreed, listed, without_article
from cxrlab.findings.realiser import Realiser, Statement
from cxrlab.findings.simulated_patients import Visit


class NegativeStatements:
    """Negatives that are true of a visit, each used once."""

    def __init__(self, visit: Visit, words: Realiser) -> None:
        """Takes what to deny from `visit` and the words from `words`."""
        self.words = words
        self.present = circumstances(visit.present)
        # What has resolved is stated elsewhere and not repeated as a plain negative.
        self.stated = {finding.observation for finding in visit.findings if not finding.present}

    def normal(self, region: str) -> list[Statement]:
        """One normal statement for the region, or none where it would be false or repeat something."""
        kinds = [
            kind
            for kind, row in NORMAL.items()
            if row.region == region and self.present.isdisjoint(row.requires) and self.stated.isdisjoint(row.states)
        ]
        if not kinds:
            return []
        kind = self.words.pick(kinds)
        states = NORMAL[kind].states
        self.stated.update(states)
        return [Statement.whole(self.words.pick(self.words.lexicon.normal[kind]), *states)]

    def denial(self, regions: Sequence[str], most: int) -> list[Statement]:
        """One list of up to `most` pertinent negatives from these regions, or none."""
        open_names = {
            name: weight
            for name, weight in PERTINENT.items()
            if name not in self.stated and region_of(name) in regions and deniable(name, self.present)
        }
        # Weighted sampling without replacement: the largest of u^(1/w) win.
        keys = {name: self.words.rng.random() ** (1 / weight) for name, weight in open_names.items()}
        count = 1 + int(self.words.rng.random() * most)
        chosen = [name for name in sorted(keys, key=keys.__getitem__, reverse=True)[:count] if keys[name] > 0.2]
        return [self._list(chosen)] if chosen else []

    def whole(self, sentences: list[Statement], *, headed: bool) -> list[Statement]:
        """A normal radiograph's sentences with a verdict on the whole radiograph where one is due."""
        short = len(sentences) < 2
        if not short and (headed or not self.words.chance(0.3)):
            return sentences
        verdict = Statement(self.words.pick(self.words.lexicon.normal["whole"]))
        return [verdict, *sentences] if self.words.chance(0.6) else [*sentences, verdict]

    def _list(self, names: Sequence[str]) -> Statement:
        self.stated.update(names)
        words = self.words
        chosen = [words.pick(words.lexicon.observations[name].absent) for name in names]
        frames = [pair for pair in words.lexicon.denials if len(chosen) > 1 or pair[1] != "nor"]
        frame, word = words.pick(frames)
        before, slot, after = re.split(r"\{(list|bare)\}", frame)
        items = [item.removeprefix("+ ") for item in chosen]
        items = [without_article(item) for item in items] if slot == "bare" else items
        # A verb agrees with the item next to it, or with all of them when they are joined by "and".
        summed = word == "and" and len(items) > 1
        before = agreed(before, summed or chosen[0].startswith("+"))
        after = agreed(after, summed or chosen[-1].startswith("+"))
        text = before + listed(items, word) + after
        marks = []
        cursor = len(before)
        for name, item in zip(names, items, strict=True):
            start = text.index(item, cursor)
            cursor = start + len(item)
            marks.append((start, cursor, name))
        return Statement(text, tuple(marks))


REGIONS: Mapping[Group, str] = {
    Group.LUNG: "lungs",
    Group.PLEURA: "pleura",
    Group.HEART: "heart",
    Group.MEDIASTINUM: "mediastinum",
    Group.DIAPHRAGM: "abdomen",
    Group.BONE: "bones",
    Group.SOFT_TISSUE: "bones",
    Group.DEVICE: "lines",
}

_LUNG = tuple(name for name in DRAWN if observation(name).group is Group.LUNG)
_PLEURA = tuple(name for name in DRAWN if observation(name).group is Group.PLEURA)
_DEVICES = tuple(name for name in DRAWN if observation(name).group is Group.DEVICE)
_AIRSPACE = ("consolidation", "pneumonia", "lung opacity")
_BONES = ("rib fracture", "clavicle fracture")
_TUBES = ("endotracheal tube", "enteric tube", "central venous catheter", "chest tube")


@dataclass(frozen=True)
class Condition:
    """Findings that hide or contradict something only by their degree, side or place."""

    names: tuple[str, ...]  # observations, any of which may fulfil it
    grades: tuple[Severity, ...] = ()  # severities that do; empty for every one
    sides: tuple[Side, ...] = ()  # sides that do; empty for every one
    places: tuple[str, ...] = ()  # locations that do; empty for every one

    def met(self, finding: Finding) -> bool:
        """Whether this finding fulfils it."""
        wanted = (
            (self.names, finding.observation),
            (self.grades, finding.severity),
            (self.sides, finding.side),
            (self.places, finding.location),
        )
        return all(not allowed or value in allowed for allowed, value in wanted)


# Named circumstances that the tables below may list beside observations.
CONDITIONS: Mapping[str, Condition] = {
    "effusion over the dome": Condition(("pleural effusion",), (Severity.MODERATE, Severity.SEVERE)),
    "effusion beside the heart": Condition(("pleural effusion",), (Severity.SEVERE,), (Side.LEFT, Side.BILATERAL)),
    "dense base": Condition((*_AIRSPACE, "atelectasis"), (Severity.SEVERE,), places=("lower zone",)),
    "large lesion at the base": Condition(("mass", "cavity"), places=("lower zone",)),
}
_HIDDEN_BASE = ("dense base", "large lesion at the base")

# Denied observation → others that would make the denial false or misleading; itself always would.
ALSO_DENIED: Mapping[str, tuple[str, ...]] = {
    "consolidation": _AIRSPACE,
    "pneumonia": _AIRSPACE,
    "lung opacity": tuple(name for name in _LUNG if name not in ("emphysema", "low lung volumes")),
    "atelectasis": ("low lung volumes", "effusion over the dome"),
    "edema": ("interstitial pattern",),
    "interstitial pattern": ("edema",),
    "nodule": ("mass", "cavity", "granuloma"),
    "mass": ("nodule", "cavity"),
    "cavity": ("mass",),
    "granuloma": ("nodule", "pleural plaque"),
    "emphysema": ("subcutaneous emphysema",),
    "low lung volumes": ("atelectasis", "elevated hemidiaphragm"),
    "pleural thickening": ("pleural plaque",),
    "pleural plaque": ("pleural thickening",),
    "cardiomegaly": ("enlarged cardiomediastinum", "effusion beside the heart"),
    "enlarged cardiomediastinum": ("cardiomegaly", "tortuous aorta", "hilar enlargement", "hiatal hernia"),
    "hilar enlargement": ("enlarged cardiomediastinum",),
    "elevated hemidiaphragm": ("low lung volumes", "effusion over the dome", *_HIDDEN_BASE),
    "rib fracture": _BONES,
    "clavicle fracture": _BONES,
}

# How readily each observation is denied; what is not listed has 0.15, devices 0.03.
_PERTINENT: Mapping[str, float] = {
    "pleural effusion": 5, "pneumothorax": 5, "consolidation": 4, "edema": 3, "pneumonia": 2, "lung opacity": 1,
    "nodule": 1.2, "mass": 1, "cardiomegaly": 1, "atelectasis": 0.6, "enlarged cardiomediastinum": 0.7,
    "hilar enlargement": 0.5, "rib fracture": 1, "clavicle fracture": 0.5, "pneumoperitoneum": 1.2,
    "subcutaneous emphysema": 0.4,
}  # fmt: skip
PERTINENT: Mapping[str, float] = {name: _PERTINENT.get(name, 0.03 if name in _DEVICES else 0.15) for name in DRAWN}


@dataclass(frozen=True)
class Normal:
    """One kind of normal statement."""

    region: str  # where in the report it stands
    requires: tuple[str, ...]  # observations and conditions that must not be there, not even possibly
    states: tuple[str, ...]  # observations that the statement says are absent


NORMAL: Mapping[str, Normal] = {
    "heart": Normal(
        "heart", ("cardiomegaly", "enlarged cardiomediastinum", "effusion beside the heart"), ("cardiomegaly",)
    ),
    "mediastinum": Normal(
        "mediastinum",
        ("enlarged cardiomediastinum", "hilar enlargement", "tortuous aorta", "aortic calcification", "hiatal hernia"),
        ("enlarged cardiomediastinum",),
    ),
    "hila": Normal(
        "mediastinum",
        ("enlarged cardiomediastinum", "hilar enlargement", "tortuous aorta", "aortic calcification", "hiatal hernia"),
        ("enlarged cardiomediastinum", "hilar enlargement"),
    ),
    "lungs": Normal(
        "lungs", (*_LUNG, *_PLEURA, "elevated hemidiaphragm"), ("lung opacity", "consolidation")
    ),
    "angles": Normal("pleura", ("pleural effusion", "pleural thickening", *_HIDDEN_BASE), ("pleural effusion",)),
    "pleura": Normal("pleura", _PLEURA, ("pleural effusion", "pneumothorax")),
    "bones": Normal("bones", (*_BONES, "scoliosis"), _BONES),
    "diaphragm": Normal(
        "abdomen",
        (
            "elevated hemidiaphragm", "pneumoperitoneum", "hiatal hernia", "low lung volumes", "emphysema",
            "pleural effusion", *_HIDDEN_BASE,
        ),
        ("elevated hemidiaphragm",),
    ),
    "abdomen": Normal("abdomen", ("pneumoperitoneum", "hiatal hernia"), ("pneumoperitoneum",)),
    "lines": Normal("lines", _DEVICES, _TUBES),
    "devices": Normal("lines", _DEVICES, _DEVICES),
}  # fmt: skip

# Beside these, when nothing about them is new or worse, one may still say that nothing is acute.
CHRONIC = frozenset(
    {
        "granuloma", "emphysema", "pleural plaque", "tortuous aorta", "aortic calcification", "hiatal hernia",
        "scoliosis", "pacemaker", "sternal wires",
    }
)  # fmt: skip


def circumstances(present: Iterable[Finding]) -> frozenset[str]:
    """The observations of a radiograph and the conditions that they fulfil."""
    findings = tuple(present)
    met = {name for name, condition in CONDITIONS.items() if any(condition.met(finding) for finding in findings)}
    return frozenset({*met, *(finding.observation for finding in findings)})


def deniable(name: str, present: frozenset[str]) -> bool:
    """Whether "no <name>" is true and not misleading in these circumstances."""
    return name not in present and present.isdisjoint(ALSO_DENIED.get(name, ()))


def region_of(name: str) -> str:
    """The region of the report in which an observation is stated."""
    return REGIONS[observation(name).group]
