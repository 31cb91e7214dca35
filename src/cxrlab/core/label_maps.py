"""From each corpus's own label names to the vocabulary.

A row says which observations a label stands for. Several observations are alternatives: the label
promises at least one of them and does not tell which. A label that the vocabulary cannot express
keeps a row with the reason, so that an importer can tell "left out on purpose" from "never seen".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cxrlab.core.errors import VocabularyError, nearest
from cxrlab.core.vocabulary import CHEXPERT_14, observation


@dataclass(frozen=True)
class Mapped:
    """What one label of a corpus means here.

    Args:
        observations: Names of the vocabulary, at least one of which is present; empty when none fits.
        chexpert: A CheXpert observation stated by the label itself, where it is wider than the rows.
        note: Why nothing fits, or what to keep in mind.
    """

    observations: tuple[str, ...] = ()
    chexpert: str | None = None
    note: str = ""

    @property
    def label(self) -> str | None:
        """The CheXpert observation that the label makes positive; None unless every alternative agrees on it."""
        if self.chexpert is not None:
            return self.chexpert
        towards = {observation(name).chexpert for name in self.observations}
        return towards.pop() if len(towards) == 1 else None


def _is(*observations: str, note: str = "") -> Mapped:
    return Mapped(observations, note=note)


def _coarse(chexpert: str, *observations: str, note: str = "") -> Mapped:
    return Mapped(observations, chexpert, note)


def _none(reason: str) -> Mapped:
    return Mapped(note=reason)


_CHEXPERT = {name: _coarse(name) for name in CHEXPERT_14}
_ONLY_OWN = "none of this corpus's own labels; something that it does not list may still be there"
_FIBROSIS = _is("scarring", "interstitial pattern", note="local scar or diffuse fibrosis, not told apart")
_COPD = _is("emphysema", "hyperinflation", note="a diagnosis; either sign may be on the film")
_MANY_SIGNS = "a diagnosis that shows in many ways"
_UNPLACED = "the tissue that is calcified is not named"
_NOT_A_FINDING = "not a finding"
_OUTSIDE = "not in the vocabulary"

MIMIC_CXR = {**_CHEXPERT, "Airspace Opacity": _coarse("Lung Opacity", note="its name in the 2.1.0 test labels")}
CHEXPERT = dict(_CHEXPERT)
BRAX = dict(_CHEXPERT)

CANDID_PTX = {
    "pneumothorax": _is("pneumothorax"),
    "chest tube": _is("chest tube"),
    "acute rib fracture": _is("rib fracture"),
}

OBJECT_CXR = {"foreign object": _none("any object on or in the patient, most often jewellery or clothing")}

VINDR_CXR = {
    "Aortic enlargement": _none("a wide aorta is not in the vocabulary; a tortuous one is another thing"),
    "Atelectasis": _is("atelectasis"),
    "Calcification": _none(_UNPLACED),
    "Cardiomegaly": _is("cardiomegaly"),
    "Clavicle fracture": _is("clavicle fracture"),
    "Consolidation": _is("consolidation"),
    "Edema": _is("edema"),
    "Emphysema": _is("emphysema"),
    "Enlarged PA": _is("hilar enlargement", note="an enlarged pulmonary artery shows at the hilum"),
    "ILD": _is("interstitial pattern"),
    "Infiltration": _is("lung opacity"),
    "Lung Opacity": _is("lung opacity"),
    "Lung cavity": _is("cavity"),
    "Lung cyst": _is("bulla", note="a thin-walled air space"),
    "Mediastinal shift": _is("mediastinal shift"),
    "Nodule/Mass": _is("nodule", "mass"),
    "Pleural effusion": _is("pleural effusion"),
    "Pleural thickening": _is("pleural thickening"),
    "Pneumothorax": _is("pneumothorax"),
    "Pulmonary fibrosis": _FIBROSIS,
    "Rib fracture": _is("rib fracture"),
    "Other lesion": _none("whatever the list does not name"),
    "COPD": _COPD,
    "Lung tumor": _is("nodule", "mass"),
    "Pneumonia": _is("pneumonia"),
    "Tuberculosis": _none(_MANY_SIGNS),
    "Other diseases": _none("whatever the list does not name"),
    "No finding": _coarse("No Finding", note=_ONLY_OWN),
}

NIH_CXR14 = {
    "Atelectasis": _is("atelectasis"),
    "Cardiomegaly": _is("cardiomegaly"),
    "Consolidation": _is("consolidation"),
    "Edema": _is("edema"),
    "Effusion": _is("pleural effusion"),
    "Emphysema": _is("emphysema", "subcutaneous emphysema", note="mined from text, which did not tell the two apart"),
    "Fibrosis": _FIBROSIS,
    "Hernia": _is("hiatal hernia", note="nearly always hiatal"),
    "Infiltration": _is("lung opacity"),
    "Mass": _is("mass"),
    "Nodule": _is("nodule"),
    "Pleural_Thickening": _is("pleural thickening"),
    "Pneumonia": _is("pneumonia"),
    "Pneumothorax": _is("pneumothorax"),
    "No Finding": _coarse("No Finding", note=_ONLY_OWN),
}

PADCHEST = {
    "normal": _coarse("No Finding"),
    "unchanged": _none("a comparison without a finding"),
    "exclude": _none(_NOT_A_FINDING),
    "suboptimal study": _none(_NOT_A_FINDING),
    "chronic changes": _none("no particular finding"),
    # lung
    "alveolar pattern": _is("lung opacity"),
    "infiltrates": _is("lung opacity"),
    "ground glass pattern": _is("lung opacity"),
    "increased density": _is("lung opacity"),
    "consolidation": _is("consolidation"),
    "pneumonia": _is("pneumonia"),
    "atypical pneumonia": _is("pneumonia"),
    "atelectasis": _is("atelectasis"),
    "laminar atelectasis": _is("atelectasis"),
    "lobar atelectasis": _is("atelectasis"),
    "segmental atelectasis": _is("atelectasis"),
    "volume loss": _is("atelectasis", "low lung volumes"),
    "hypoexpansion": _is("low lung volumes"),
    "hypoexpansion basal": _is("low lung volumes"),
    "pulmonary edema": _is("edema"),
    "heart insufficiency": _none(_MANY_SIGNS),
    "hilar congestion": _is("vascular congestion"),
    "nodule": _is("nodule"),
    "multiple nodules": _is("nodule"),
    "pulmonary mass": _is("mass"),
    "mass": _none("the place of the mass is not named"),
    "cavitation": _is("cavity"),
    "granuloma": _is("granuloma"),
    "calcified granuloma": _is("granuloma"),
    "calcified densities": _none(_UNPLACED),
    "pseudonodule": _none("looks like a nodule and is none"),
    "nipple shadow": _none(_NOT_A_FINDING),
    "emphysema": _is("emphysema"),
    "COPD signs": _COPD,
    "air trapping": _is("hyperinflation"),
    "hyperinflated lung": _is("hyperinflation"),
    "flattened diaphragm": _is("hyperinflation"),
    "bullas": _is("bulla"),
    "interstitial pattern": _is("interstitial pattern"),
    "reticular interstitial pattern": _is("interstitial pattern"),
    "bronchovascular markings": _none("prominent markings may be normal"),
    "bronchiectasis": _is("bronchiectasis"),
    "pulmonary fibrosis": _FIBROSIS,
    "fibrotic band": _is("scarring"),
    "tuberculosis": _none(_MANY_SIGNS),
    "tuberculosis sequelae": _none(_MANY_SIGNS),
    # pleura
    "pleural effusion": _is("pleural effusion"),
    "loculated pleural effusion": _is("pleural effusion"),
    "costophrenic angle blunting": _is("pleural effusion", "pleural thickening", note="fluid or scar"),
    "pneumothorax": _is("pneumothorax"),
    "hydropneumothorax": _is("pneumothorax", note="with fluid; the effusion is a second finding"),
    "pleural thickening": _is("pleural thickening"),
    "apical pleural thickening": _is("pleural thickening"),
    "calcified pleural thickening": _is("pleural thickening"),
    "pleural plaques": _is("pleural plaque"),
    "calcified pleural plaques": _is("pleural plaque"),
    # heart, mediastinum, diaphragm
    "cardiomegaly": _is("cardiomegaly"),
    "mediastinal enlargement": _is("enlarged cardiomediastinum"),
    "superior mediastinal enlargement": _is("enlarged cardiomediastinum"),
    "mediastinal mass": _is("enlarged cardiomediastinum", note="seen as a wide mediastinum"),
    "mediastinal shift": _is("mediastinal shift"),
    "pneumomediastinum": _is("pneumomediastinum"),
    "hilar enlargement": _is("hilar enlargement"),
    "vascular hilar enlargement": _is("hilar enlargement"),
    "aortic elongation": _is("tortuous aorta"),
    "descendent aortic elongation": _is("tortuous aorta"),
    "supra aortic elongation": _is("tortuous aorta"),
    "aortic atheromatosis": _is("aortic calcification"),
    "tracheal shift": _is("tracheal deviation"),
    "hiatal hernia": _is("hiatal hernia"),
    "goiter": _none(_OUTSIDE),
    "hemidiaphragm elevation": _is("elevated hemidiaphragm"),
    "diaphragmatic eventration": _is("elevated hemidiaphragm"),
    "pneumoperitoneo": _is("pneumoperitoneum"),
    # bones and soft tissue
    "scoliosis": _is("scoliosis"),
    "kyphosis": _none(_OUTSIDE),
    "vertebral degenerative changes": _is("degenerative change"),
    "vertebral compression": _is("vertebral fracture"),
    "vertebral anterior compression": _is("vertebral fracture"),
    "vertebral fracture": _is("vertebral fracture"),
    "rib fracture": _is("rib fracture"),
    "callus rib fracture": _is("rib fracture", note="healed"),
    "clavicle fracture": _is("clavicle fracture"),
    "humeral fracture": _coarse("Fracture"),
    "fracture": _coarse("Fracture"),
    "osteopenia": _is("osteopenia"),
    "osteoporosis": _is("osteopenia"),
    "sclerotic bone lesion": _is("bone lesion"),
    "subcutaneous emphysema": _is("subcutaneous emphysema"),
    # devices and traces of surgery
    "endotracheal tube": _is("endotracheal tube"),
    "tracheostomy tube": _is("tracheostomy tube"),
    "NSG tube": _is("enteric tube"),
    "central venous catheter": _is("central venous catheter"),
    "central venous catheter via jugular vein": _is("central venous catheter"),
    "central venous catheter via subclavian vein": _is("central venous catheter"),
    "reservoir central venous catheter": _is("port"),
    "chest drain tube": _is("chest tube"),
    "pacemaker": _is("pacemaker"),
    "dual chamber device": _is("pacemaker"),
    "single chamber device": _is("pacemaker"),
    "electrical device": _coarse("Support Devices"),
    "artificial heart valve": _is("prosthetic valve"),
    "sternotomy": _is("sternal wires"),
    "suture material": _is("surgical clips", note="clips, staples or wires"),
    "osteosynthesis material": _coarse("Support Devices"),
    "metal": _none("any metal, often outside the patient"),
}

LABEL_MAPS: Mapping[str, Mapping[str, Mapped]] = MappingProxyType(
    {
        "mimic-cxr": MappingProxyType(MIMIC_CXR),
        "chexpert": MappingProxyType(CHEXPERT),
        "brax": MappingProxyType(BRAX),
        "candid-ptx": MappingProxyType(CANDID_PTX),
        "vindr-cxr": MappingProxyType(VINDR_CXR),
        "object-cxr": MappingProxyType(OBJECT_CXR),
        "padchest": MappingProxyType(PADCHEST),
        "nih-cxr14": MappingProxyType(NIH_CXR14),
    }
)


def mapped(corpus: str, label: str) -> Mapped:
    """What `label` of `corpus` means; an unknown corpus or label is a `VocabularyError` with the nearest."""
    if corpus not in LABEL_MAPS:
        names = ", ".join(LABEL_MAPS)
        raise VocabularyError(f"there is no label map for '{corpus}'.{nearest(corpus, LABEL_MAPS)} Known: {names}.")
    rows = LABEL_MAPS[corpus]
    if label not in rows:
        raise VocabularyError(
            f"'{label}' has no row in the label map of {corpus}.{nearest(label, rows)} "
            f"Add one to cxrlab/core/label_maps.py, with the reason if nothing fits."
        )
    return rows[label]
