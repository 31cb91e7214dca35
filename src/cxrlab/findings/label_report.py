"""The text of a report for a study of which only labels are known, in varied words.

The text states the labels and nothing else: no side, no size, nothing of a label that is missing. It is
the same for the same study on every machine. `stated_labels` returns the labels that the text states: all of a consistent
set, and of others what is left when contradictions are taken out. A set is consistent when

1. the label for "nothing found" is 1 only where every other label but devices is 0 or missing, and is 0 only
   where one of them is 1 or -1 (the text then states that one; "nothing found" is never uncertain);
2. labels that stand for one observation of the vocabulary ("Infiltration" and "Lung Opacity" of VinDr-CXR) agree.
   Where they do not, the strongest is stated: present before possible before absent.

A parent of CheXpert's hierarchy may be absent where a child is present, as in the labels of that corpus: the
text then says that there is no *other* opacity.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cxrlab.core.errors import ConfigError, DataError, VocabularyError, did_you_mean, short_repr
from cxrlab.core.label_maps import map_label
from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import CHEXPERT_CHILDREN
from cxrlab.findings.grammar import capital, listed, without_article

_STRENGTH = {0: 0, -1: 1, 1: 2}
_DEVICES = "Support Devices"
# How often a label is stated in a sentence of its own words and not in a frame, where it has such sentences.
_OWN_WORDS = 0.4


def label_report(labels: Mapping[str, int], study_id: str, style: str) -> str:
    """Sentences that state these labels.

    Args:
        labels: Label of the style → 1 present, 0 absent, -1 uncertain; a missing label is not mentioned.
        study_id: Chooses the words, together with the style.
        style: A name of `label_sentences.STYLES`.

    Returns:
        The text; empty where the labels state nothing.
    """
    row = _style(style)
    rest = stated_labels(labels, style)
    writer = _Writer(style, rest, study_id)
    sentences = writer.shuffled([sentence for value in (1, -1, 0) for sentence in writer.sentences(value)])
    sentences += writer.what_is_left()
    if row.nothing in rest:
        sentences.insert(0 if writer.chance(0.5) else len(sentences), writer.pick(NOTHING_FOUND))
    return " ".join(sentences)


def stated_labels(labels: Mapping[str, int], style: str) -> dict[str, int]:
    """The labels that the text of this style states, in the order of the style: see the top of this file."""
    row = _style(style)
    for name, value in labels.items():
        if name not in row.wordings and name != row.nothing:
            known = (*row.wordings, *((row.nothing,) if row.nothing else ()))
            raise VocabularyError(
                f"'{name}' is not a label of the style '{style}'.{did_you_mean(name, known)} Labels: {', '.join(known)}."
            )
        if value not in _STRENGTH:
            raise DataError(
                f"the label '{name}' is {short_repr(value)}; it must be 1 (present), 0 (absent) or -1 (uncertain), "
                f"or be left out."
            )
    given = {name: labels[name] for name in row.wordings if name in labels}
    kept = {name: value for name, value in given.items() if not _outweighed(name, given, _rivals(style))}
    found = any(value for name, value in kept.items() if name != _DEVICES)
    if row.nothing and labels.get(row.nothing) == 1 and not found:
        kept[row.nothing] = 1
    return kept


def _outweighed(name: str, given: Mapping[str, int], rivals: Mapping[str, Sequence[str]]) -> bool:
    """Whether a stronger label stands for one of the observations that this one would deny or leave open."""
    return any(_STRENGTH[given[other]] > _STRENGTH[given[name]] for other in rivals[name] if other in given)


@functools.cache
def _rivals(style: str) -> dict[str, tuple[str, ...]]:
    """Label → the others of the style that share an observation with it."""
    row = _style(style)
    means = {name: set(map_label(row.corpus, name).observations) for name in row.wordings}
    return {
        name: tuple(other for other in means if other != name and means[other] & means[name]) for name in row.wordings
    }


@functools.cache
def _children(style: str) -> dict[str, tuple[str, ...]]:
    """Label → the labels of the style that CheXpert's hierarchy puts under it."""
    row = _style(style)
    towards = {name: map_label(row.corpus, name).label for name in row.wordings}
    return {
        name: tuple(other for other in towards if towards[other] in CHEXPERT_CHILDREN.get(towards[name] or "", ()))
        for name in row.wordings
    }


def _style(name: str) -> Style:
    if name not in STYLES:
        raise ConfigError(
            f"there is no style '{name}' for labels.{did_you_mean(name, STYLES)} Styles: {', '.join(STYLES)}."
        )
    return STYLES[name]


class _Writer:
    """The words for one study."""

    def __init__(self, style: str, labels: Mapping[str, int], study_id: str) -> None:
        self.name = style
        self.style = _style(style)
        self.labels = labels
        self.rng = generator(0, "label report", style, study_id)

    def chance(self, share: float) -> bool:
        """True in this share of all draws."""
        return bool(self.rng.random() < share)

    def pick(self, choices: Sequence[str]) -> str:
        """One of them, each as likely."""
        return choices[int(self.rng.random() * len(choices))]

    def shuffled(self, items: Sequence[str]) -> list[str]:
        """The same in any order."""
        keys = self.rng.random(len(items))
        return [items[index] for index in sorted(range(len(items)), key=lambda index: float(keys[index]))]

    def sentences(self, value: int) -> list[str]:
        """All labels of this value, some in sentences of their own and the rest in lists."""
        done: list[str] = []
        waiting: list[Wording] = []
        names = [name for name, given in self.labels.items() if given == value and name != self.style.nothing]
        for name in self.shuffled([name for name in names if not self._beside(name)]):
            wording = self.style.wordings[name]
            own = wording.sentences(value) if self.chance(_OWN_WORDS) else ()
            if own:
                done.append(self.pick(own))
            elif wording.alone:
                done.append(self._framed([wording], value))
            else:
                waiting.append(wording)
        while waiting:
            count = 1 + int(self.rng.random() * LONGEST[value])
            done.append(self._framed(waiting[:count], value))
            waiting = waiting[count:]
        return done

    def what_is_left(self) -> list[str]:
        """The denials of labels that include something that is there or may be; they come last."""
        return [self.pick(sentences) for name in self.labels if (sentences := self._beside(name))]

    def _beside(self, name: str) -> tuple[str, ...]:
        if self.labels[name] or not any(self.labels.get(child) for child in _children(self.name).get(name, ())):
            return ()
        return self.style.wordings[name].beside

    def _framed(self, wordings: Sequence[Wording], value: int) -> str:
        names = [self.pick(wording.names if value else wording.denied or wording.names) for wording in wordings]
        # Under one frame the first article speaks for all: "no nodule or mass", "possible nodule and effusion".
        names.sort(key=lambda name: name.startswith("other"))  # "… or other pleural abnormality" ends a list
        bare = listed([without_article(name) for name in names], JOINT[value])
        verb = "are" if len(names) > 1 else "is"
        text = self.pick(FRAMES[value]).format(list=listed(names, JOINT[value]), bare=bare, **{"is": verb})
        return capital(text)


FRAMES: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        1: (
            "There is {list}.",
            "{list} {is} seen.",
            "{list} {is} visible.",
            "{list} can be seen.",
            "{list} {is} noted on this film.",
            "The film shows {list}.",
            "The chest film demonstrates {list}.",
            "On this view there is {list}.",
        ),
        0: (
            "No {bare}.",
            "No {bare} is seen.",
            "There is no {bare}.",
            "There is no sign of {bare}.",
            "The film shows no {bare}.",
            "The film is negative for {bare}.",
            "No {bare} can be made out.",
        ),
        -1: (
            "There may be {list}.",
            "{list} cannot be excluded.",
            "{list} {is} possible.",
            "Possible {bare}.",
            "{list} may be present.",
            "The film leaves {list} in question.",
        ),
    }
)
# What joins a list under a frame; a denial reaches through "or".
JOINT: Mapping[int, str] = MappingProxyType({1: "and", 0: "or", -1: "and"})
# The longest list under a frame.
LONGEST: Mapping[int, int] = MappingProxyType({1: 2, 0: 5, -1: 2})
NOTHING_FOUND = (
    "No abnormality is seen.",
    "The film shows nothing abnormal.",
    "Nothing out of the ordinary is seen.",
    "There is no abnormality to report.",
    "This film shows no disease of the chest.",
)


@dataclass(frozen=True)
class Wording:
    """How one label is worded.

    Args:
        names: With the article that they take, for what is there or may be there.
        denied: Names for what is not there; empty where `names` without their articles serve.
        present: Whole sentences, used beside the frames; so are the next two.
        absent: For the value 0.
        possible: For the value -1.
        beside: Sentences for the value 0 where a label that this one includes is present or possible: "no other …".
        alone: Never in a list: the reader does not know it by name and would take the list for its neighbours.
    """

    names: tuple[str, ...]
    denied: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    alone: bool = False

    def sentences(self, value: int) -> tuple[str, ...]:
        """The whole sentences for a value."""
        return {1: self.present, 0: self.absent, -1: self.possible}[value]


_ATELECTASIS = Wording(
    ("atelectasis", "an area of atelectasis", "atelectatic change"), denied=("atelectasis", "atelectatic change")
)
_CARDIOMEGALY = Wording(
    ("cardiomegaly", "cardiac enlargement", "an enlarged heart"),
    denied=("cardiomegaly", "cardiac enlargement"),
    present=("The heart is enlarged.", "The heart is larger than normal."),
    absent=("The heart is not enlarged.", "The heart size is normal."),
    possible=("The heart may be enlarged.", "The heart is possibly enlarged."),
)
_CONSOLIDATION = Wording(
    ("a consolidation", "airspace consolidation", "an area of consolidation"),
    denied=("consolidation", "airspace consolidation"),
)
_EDEMA = Wording(("pulmonary edema", "edema of the lungs", "lung edema"))
_EFFUSION = Wording(
    ("a pleural effusion", "pleural fluid"),
    present=("Fluid is seen in the pleural space.",),
    absent=("The pleural space holds no fluid.",),
)
_LUNG_OPACITY = Wording(
    ("a lung opacity", "pulmonary opacity", "an opacity in the lungs"),
    denied=("lung opacity", "pulmonary opacity"),
    beside=("No other lung opacity is seen.", "There is no further opacity of the lungs."),
)
_PLEURAL_THICKENING = Wording(("pleural thickening", "thickening of the pleura"))
_PNEUMONIA = Wording(("pneumonia", "lung infection"))
_PNEUMOTHORAX = Wording(("a pneumothorax", "pleural air"), denied=("pneumothorax",))
_RIB_FRACTURE = Wording(("a rib fracture", "a fracture of a rib"), denied=("rib fracture",))

FOURTEEN = {
    "Enlarged Cardiomediastinum": Wording(
        ("mediastinal widening", "widening of the mediastinum", "an enlarged cardiomediastinal silhouette"),
        denied=("mediastinal widening", "widening of the mediastinum"),
        present=("The mediastinum is widened.",),
        absent=("The mediastinum is not widened.",),
        possible=("The mediastinum may be widened.",),
    ),
    "Cardiomegaly": _CARDIOMEGALY,
    "Lung Opacity": _LUNG_OPACITY,
    "Lung Lesion": Wording(
        ("a lung lesion", "a pulmonary lesion"),
        denied=("lung lesion",),
        absent=("No nodule or mass is seen.", "There is neither a nodule nor a mass in the lungs."),
        possible=("A nodule or mass is possible.", "There may be a nodule or mass."),
    ),
    "Edema": _EDEMA,
    "Consolidation": _CONSOLIDATION,
    "Pneumonia": _PNEUMONIA,
    "Atelectasis": _ATELECTASIS,
    "Pneumothorax": _PNEUMOTHORAX,
    "Pleural Effusion": _EFFUSION,
    "Pleural Other": Wording(
        ("a pleural abnormality of some other kind", "an unspecified pleural abnormality"),
        denied=("other pleural abnormality", "other pleural disease"),
        present=("There is a pleural abnormality that is not further specified.",),
        absent=("No pleural thickening, plaque or other pleural abnormality is seen.",),
        possible=("There may be pleural thickening or other pleural change.",),
    ),
    "Fracture": Wording(
        ("a fracture", "a bone fracture"),
        present=("A bone is fractured.",),
        absent=("The bones show no fracture.",),
    ),
    "Support Devices": Wording(
        ("a support device", "a medical device"),
        present=("Support devices are in place.", "A medical device projects over the chest."),
        absent=("No tubes, lines or other devices are seen.",),
    ),
}
CANDID_PTX = {
    "pneumothorax": _PNEUMOTHORAX,
    "chest tube": Wording(("a chest tube", "an intercostal drain")),
    "acute rib fracture": Wording(("an acute rib fracture", "an acute fracture of a rib")),
}
OBJECT_CXR = {
    "foreign object": Wording(
        ("a foreign object", "a foreign body"),
        absent=("The film is free of foreign objects.",),
    )
}
VINDR_CXR = {
    "Aortic enlargement": Wording(
        ("enlargement of the aorta", "a widened aorta"),
        denied=("aortic enlargement", "widening of the aorta"),
        present=("The aorta is enlarged.",),
        absent=("The aorta is not enlarged.",),
        possible=("The aorta may be enlarged.",),
    ),
    "Atelectasis": _ATELECTASIS,
    "Calcification": Wording(("a calcification",), alone=True),
    "Cardiomegaly": _CARDIOMEGALY,
    "Clavicle fracture": Wording(("a clavicle fracture", "a fracture of the clavicle")),
    "Consolidation": _CONSOLIDATION,
    "Edema": _EDEMA,
    "Emphysema": Wording(("emphysema", "pulmonary emphysema")),
    "Enlarged PA": Wording(
        ("enlargement of the pulmonary artery", "a dilated pulmonary artery"),
        denied=("enlargement of the pulmonary artery",),
    ),
    "ILD": Wording(("interstitial lung disease", "diffuse interstitial disease")),
    "Infiltration": Wording(("a lung infiltrate", "pulmonary infiltration"), beside=("No other infiltrate is seen.",)),
    "Lung Opacity": _LUNG_OPACITY,
    "Lung cavity": Wording(("a lung cavity", "a cavity in the lung")),
    "Lung cyst": Wording(("a lung cyst", "a pulmonary cyst")),
    "Mediastinal shift": Wording(
        ("mediastinal shift", "a shift of the mediastinum"),
        present=("The mediastinum is displaced.",),
        absent=("The mediastinum is not displaced.",),
    ),
    "Nodule/Mass": Wording(("a nodule/mass", "a lung nodule/mass"), absent=("No nodule or mass is seen.",)),
    "Pleural effusion": _EFFUSION,
    "Pleural thickening": _PLEURAL_THICKENING,
    "Pneumothorax": _PNEUMOTHORAX,
    "Pulmonary fibrosis": Wording(("pulmonary fibrosis", "fibrosis of the lungs")),
    "Rib fracture": _RIB_FRACTURE,
    "Other lesion": Wording(("a lesion of another kind",), alone=True),
    "COPD": Wording(("chronic obstructive pulmonary disease", "COPD")),
    "Lung tumor": Wording(("a lung tumor", "a lung neoplasm")),
    "Pneumonia": _PNEUMONIA,
    "Tuberculosis": Wording(("tuberculosis", "pulmonary tuberculosis"), alone=True),
    "Other diseases": Wording(("a disease of another kind",), alone=True),
}


@dataclass(frozen=True)
class Style:
    """The labels of a kind of corpus.

    Args:
        corpus: Row of `core.label_maps` that says what they mean.
        wordings: The wording of each label.
        nothing: The label that says that nothing was found, or None.
    """

    corpus: str
    wordings: Mapping[str, Wording]
    nothing: str | None = None


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        "chexpert": Style("chexpert", MappingProxyType(FOURTEEN), "No Finding"),
        "brax": Style("brax", MappingProxyType(FOURTEEN), "No Finding"),
        "candid-ptx": Style("candid-ptx", MappingProxyType(CANDID_PTX)),
        "vindr-cxr": Style("vindr-cxr", MappingProxyType(VINDR_CXR), "No finding"),
        "object-cxr": Style("object-cxr", MappingProxyType(OBJECT_CXR)),
    }
)
