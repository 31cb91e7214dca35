"""The words in which labels are told: frames for any label, and what each label is called.

The words are this project's own. A label tells neither side nor size, and so no sentence here does.
In a frame `{list}` takes names with their articles, `{bare}` names without, and `{is}` agrees with the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
    """How one label is told.

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
        wordings: How each is told.
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
