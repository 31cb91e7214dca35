"""From each corpus's own label names to the vocabulary.

A row says which observations a label stands for. Several observations are alternatives: the label
promises at least one of them and does not tell which. A label that the vocabulary cannot express
keeps a row with the reason, so that an importer can tell "left out on purpose" from "never seen".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cxrlab.core.errors import VocabularyError, did_you_mean
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
_COPD = _is("emphysema", "hyperinflation", note="a diagnosis; either sign may be on the image")
_MANY_SIGNS = "a diagnosis that shows in many ways"
_UNPLACED = "the tissue that is calcified is not named"
_NOT_A_FINDING = "not a finding"
_OUTSIDE = "not in the vocabulary"
_VARIANT = "a normal variant"
_FISSURE = _is("pleural thickening", "pleural effusion", note="scar or fluid in a fissure")

MIMIC_CXR = {**_CHEXPERT, "Airspace Opacity": _coarse("Lung Opacity", note="its name in the 2.1.0 test labels")}
CHEXPERT = dict(_CHEXPERT)
BRAX = dict(_CHEXPERT)

CANDID_PTX = {
    "pneumothorax": _is("pneumothorax"),
    "chest tube": _is("chest tube"),
    "acute rib fracture": _is("rib fracture"),
}

OBJECT_CXR = {"foreign object": _is("foreign body", note="on or in the patient, most often jewellery or clothing")}

VINDR_CXR = {
    "Aortic enlargement": _is("aortic aneurysm", note="a wide aorta; a tortuous one is another thing"),
    "Atelectasis": _is("atelectasis"),
    "Calcification": _none(_UNPLACED),
    "Cardiomegaly": _is("cardiomegaly"),
    "Clavicle fracture": _is("clavicle fracture"),
    "Consolidation": _is("consolidation"),
    "Edema": _is("edema"),
    "Emphysema": _is("emphysema"),
    "Enlarged PA": _is("pulmonary artery enlargement"),
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
    "obesity": _none(_NOT_A_FINDING),
    "respiratory distress": _none("a complaint, not a finding"),
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
    "total atelectasis": _is("atelectasis"),
    "round atelectasis": _is("atelectasis"),
    "atelectasis basal": _is("atelectasis"),
    "air bronchogram": _is("consolidation", "atelectasis", note="a sign of airless lung of either kind"),
    "volume loss": _is("atelectasis", "low lung volumes"),
    "hypoexpansion": _is("low lung volumes"),
    "hypoexpansion basal": _is("low lung volumes"),
    "pulmonary edema": _is("edema"),
    "heart insufficiency": _none(_MANY_SIGNS),
    "hilar congestion": _is("vascular congestion"),
    "vascular redistribution": _is("vascular congestion"),
    "central vascular redistribution": _is("vascular congestion"),
    "pulmonary venous hypertension": _is("vascular congestion"),
    "kerley lines": _is("edema", "interstitial pattern", note="fluid or something else in the septa"),
    "nodule": _is("nodule"),
    "multiple nodules": _is("nodule"),
    "lung metastasis": _is("nodule", "mass"),
    "miliary opacities": _is("nodule", "interstitial pattern", note="countless small nodules"),
    "lepidic adenocarcinoma": _none(_MANY_SIGNS),
    "pulmonary mass": _is("mass"),
    "mass": _none("the place of the mass is not named"),
    "cavitation": _is("cavity"),
    "abscess": _none("the organ is not named"),
    "air fluid level": _none("a sign of a cavity, of the pleura or of the bowel"),
    "cyst": _is("bulla", note="a thin-walled air space"),
    "granuloma": _is("granuloma"),
    "calcified granuloma": _is("granuloma"),
    "calcified densities": _none(_UNPLACED),
    "pseudonodule": _none("looks like a nodule and is none"),
    "nipple shadow": _none(_NOT_A_FINDING),
    "end on vessel": _none("a normal vessel, seen from its end"),
    "azygos lobe": _none(_VARIANT),
    "emphysema": _is("emphysema"),
    "COPD signs": _COPD,
    "air trapping": _is("hyperinflation"),
    "hyperinflated lung": _is("hyperinflation"),
    "flattened diaphragm": _is("hyperinflation"),
    "bullas": _is("bulla"),
    "interstitial pattern": _is("interstitial pattern"),
    "reticular interstitial pattern": _is("interstitial pattern"),
    "reticulonodular interstitial pattern": _is("interstitial pattern"),
    "lymphangitis carcinomatosa": _is("interstitial pattern"),
    "asbestosis signs": _is("interstitial pattern", "pleural plaque", note="a diagnosis; either sign may show"),
    "post radiotherapy changes": _is("scarring", "lung opacity", note="scar or inflammation"),
    "lung vascular paucity": _none(_OUTSIDE),
    "bronchovascular markings": _none("prominent markings may be normal"),
    "bronchiectasis": _is("bronchiectasis"),
    "pulmonary fibrosis": _FIBROSIS,
    "fibrotic band": _is("scarring"),
    "tuberculosis": _none(_MANY_SIGNS),
    "tuberculosis sequelae": _none(_MANY_SIGNS),
    # pleura
    "pleural effusion": _is("pleural effusion"),
    "loculated pleural effusion": _is("pleural effusion"),
    "loculated fissural effusion": _is("pleural effusion"),
    "empyema": _is("pleural effusion", note="infected"),
    "costophrenic angle blunting": _is("pleural effusion", "pleural thickening", note="fluid or scar"),
    "pneumothorax": _is("pneumothorax"),
    "hydropneumothorax": _is("pneumothorax", note="with fluid; the effusion is a second finding"),
    "pleural thickening": _is("pleural thickening"),
    "apical pleural thickening": _is("pleural thickening"),
    "calcified pleural thickening": _is("pleural thickening"),
    "pleural plaques": _is("pleural plaque"),
    "calcified pleural plaques": _is("pleural plaque"),
    "pleural mass": _coarse("Pleural Other"),
    "fissure thickening": _FISSURE,
    "major fissure thickening": _FISSURE,
    "minor fissure thickening": _FISSURE,
    # heart, mediastinum, diaphragm
    "cardiomegaly": _is("cardiomegaly"),
    "mediastinal enlargement": _is("enlarged cardiomediastinum"),
    "pericardial effusion": _is("pericardial effusion"),
    "dextrocardia": _none(_OUTSIDE),
    "heart valve calcified": _none(_OUTSIDE),
    "superior mediastinal enlargement": _is("enlarged cardiomediastinum"),
    "mediastinal mass": _is("enlarged cardiomediastinum", note="seen as a wide mediastinum"),
    "mediastinal shift": _is("mediastinal shift"),
    "pneumomediastinum": _is("pneumomediastinum"),
    "mediastinic lipomatosis": _none("fat, whether or not it widens the mediastinum"),
    "lipomatosis": _none("fat, its place not named"),
    "azygoesophageal recess shift": _none("a displaced line that has many causes"),
    "adenopathy": _is("lymphadenopathy"),
    "calcified adenopathy": _is("lymphadenopathy", "granuloma", note="old and calcified"),
    "calcified mediastinal adenopathy": _is("lymphadenopathy", "granuloma", note="old and calcified"),
    "hilar enlargement": _is("hilar enlargement"),
    "vascular hilar enlargement": _is("hilar enlargement"),
    "pulmonary artery enlargement": _is("pulmonary artery enlargement"),
    "pulmonary artery hypertension": _none(_MANY_SIGNS),
    "pulmonary hypertension": _none(_MANY_SIGNS),
    "aortic elongation": _is("tortuous aorta"),
    "descendent aortic elongation": _is("tortuous aorta"),
    "supra aortic elongation": _is("tortuous aorta"),
    "ascendent aortic elongation": _is("tortuous aorta"),
    "aortic button enlargement": _none("a wide aorta is not in the vocabulary; a tortuous one is another thing"),
    "aortic aneurysm": _is("aortic aneurysm"),
    "right sided aortic arch": _none(_VARIANT),
    "aortic atheromatosis": _is("aortic calcification"),
    "tracheal shift": _is("tracheal deviation"),
    "hiatal hernia": _is("hiatal hernia"),
    "goiter": _none(_OUTSIDE),
    "esophagic dilatation": _none(_OUTSIDE),
    "hemidiaphragm elevation": _is("elevated hemidiaphragm"),
    "diaphragmatic eventration": _is("elevated hemidiaphragm"),
    "pneumoperitoneo": _is("pneumoperitoneum"),
    "Chilaiditi sign": _none(_VARIANT),
    # bones and soft tissue
    "scoliosis": _is("scoliosis"),
    "kyphosis": _is("kyphosis"),
    "pectum carinatum": _is("bone deformity"),
    "pectum excavatum": _is("bone deformity"),
    "thoracic cage deformation": _is("bone deformity"),
    "cervical rib": _none(_VARIANT),
    "vertebral degenerative changes": _is("degenerative change"),
    "non axial articular degenerative changes": _is("degenerative change"),
    "axial hyperostosis": _is("degenerative change"),
    "costochondral junction hypertrophy": _is("degenerative change"),
    "sternoclavicular junction hypertrophy": _is("degenerative change"),
    "subacromial space narrowing": _is("degenerative change"),
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
    "blastic bone lesion": _is("bone lesion"),
    "lytic bone lesion": _is("bone lesion"),
    "bone metastasis": _is("bone lesion"),
    "subcutaneous emphysema": _is("subcutaneous emphysema"),
    "gynecomastia": _none(_OUTSIDE),
    "breast mass": _none("outside the chest"),
    "calcified fibroadenoma": _none("outside the chest"),
    "soft tissue mass": _none("outside the chest"),
    "abnormal foreign body": _is("foreign body"),
    "external foreign body": _is("foreign body", note="on the patient"),
    # devices and traces of surgery
    "endotracheal tube": _is("endotracheal tube"),
    "tracheostomy tube": _is("tracheostomy tube"),
    "NSG tube": _is("enteric tube"),
    "central venous catheter": _is("central venous catheter"),
    "central venous catheter via jugular vein": _is("central venous catheter"),
    "central venous catheter via subclavian vein": _is("central venous catheter"),
    "central venous catheter via umbilical vein": _is("central venous catheter"),
    "reservoir central venous catheter": _is("port"),
    "chest drain tube": _is("chest tube"),
    "ventriculoperitoneal drain tube": _is("other device"),
    "gastrostomy tube": _is("other device"),
    "nephrostomy tube": _is("other device"),
    "double J stent": _is("other device"),
    "catheter": _coarse("Support Devices"),
    "pacemaker": _is("pacemaker"),
    "dual chamber device": _is("pacemaker"),
    "single chamber device": _is("pacemaker"),
    "dai": _is("pacemaker", note="an implanted defibrillator, by its Spanish letters"),
    "electrical device": _coarse("Support Devices"),
    "artificial heart valve": _is("prosthetic valve"),
    "artificial aortic heart valve": _is("prosthetic valve"),
    "artificial mitral heart valve": _is("prosthetic valve"),
    "aortic endoprosthesis": _is("other device"),
    "endoprosthesis": _is("other device"),
    "humeral prosthesis": _is("other device"),
    "prosthesis": _is("other device"),
    "mammary prosthesis": _none("outside the chest"),
    "sternotomy": _is("sternal wires"),
    "suture material": _is("surgical clips", note="clips, staples or wires"),
    "osteosynthesis material": _coarse("Support Devices"),
    "metal": _none("any metal, often outside the patient"),
    "bone cement": _is("postsurgical change"),
    "mastectomy": _is("postsurgical change"),
    "surgery": _is("postsurgical change"),
    "surgery breast": _is("postsurgical change"),
    "surgery heart": _is("postsurgical change"),
    "surgery humeral": _is("postsurgical change"),
    "surgery lung": _is("postsurgical change"),
    "surgery neck": _is("postsurgical change"),
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
        raise VocabularyError(
            f"there is no label map for '{corpus}'.{did_you_mean(corpus, LABEL_MAPS)} Known: {names}."
        )
    rows = LABEL_MAPS[corpus]
    if label not in rows:
        raise VocabularyError(
            f"'{label}' has no row in the label map of {corpus}.{did_you_mean(label, rows)} "
            f"Add one to cxrlab/core/label_maps.py, with the reason if nothing fits."
        )
    return rows[label]
