"""Partial credit for naming an observation related to the one in the reference.

A report with "opacity" where the reference has "pneumonia" is not as wrong as one that has
nothing. Each row gives the share of the credit that either name earns for the other, from 0 (not
listed) to 1 (the same observation). The shares are judgements, in steps of a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.vocabulary import OBSERVATIONS, Group
from cxrlab.findings.significance import FLUID, INFECTION, indicates


@dataclass(frozen=True)
class Related:
    """Two observations that overlap.

    Args:
        one: The sign, or the less exact name.
        other: Its cause, or the more exact name, which implies the first. Where neither is
            more exact, the clinically weightier one.
        credit: What naming one earns where the other is meant, in (0, 1).
        reason: What they share.
        apart: Whether a report that names both means two things (a nodule and a mass), and not one thing in
            two words (an opacity and the pneumonia that it is).
    """

    one: str
    other: str
    credit: float
    reason: str
    apart: bool = False


RELATED: tuple[Related, ...] = (
    # airspace
    Related("lung opacity", "consolidation", 0.8, "a consolidation is a dense opacity"),
    Related("lung opacity", "pneumonia", 0.6, "the sign without the diagnosis"),
    Related("consolidation", "pneumonia", 0.8, "the sign and its commonest cause"),
    Related("lung opacity", "atelectasis", 0.6, "collapsed lung is an opacity"),
    Related("consolidation", "atelectasis", 0.4, "often not distinguished on one radiograph"),
    Related("pneumonia", "atelectasis", 0.4, "compete for the same opacity at the base"),
    Related("lung opacity", "edema", 0.4, "edema is a spread opacity"),
    Related("lung opacity", "scarring", 0.4, "a scar is a streak of opacity"),
    Related("lung opacity", "interstitial pattern", 0.4, "both are added density in the lung"),
    Related("lung opacity", "mass", 0.4, "a mass is an opacity, but calls for something else"),
    Related("lung opacity", "nodule", 0.4, "a nodule is a small opacity, but calls for something else"),
    Related("consolidation", "mass", 0.3, "a rounded consolidation may look like a mass"),
    # fluid
    Related("vascular congestion", "edema", 0.7, "two degrees of the same"),
    Related("edema", "heart failure", 0.8, "the sign and its commonest cause"),
    Related("vascular congestion", "heart failure", 0.7, "the sign and its commonest cause"),
    Related("cardiomegaly", "heart failure", 0.4, "often together"),
    Related("interstitial pattern", "edema", 0.5, "interstitial edema is both"),
    Related("vascular congestion", "interstitial pattern", 0.4, "prominent markings may be vessels"),
    # lesions
    Related("nodule", "mass", 0.7, "divided at 3 cm", apart=True),
    Related("nodule", "granuloma", 0.6, "a granuloma is a healed nodule"),
    Related("mass", "cavity", 0.6, "a cavity is a hollow mass"),
    Related("nodule", "cavity", 0.4, "a small cavity is a hollow nodule"),
    # chronic lung disease
    Related("hyperinflation", "emphysema", 0.8, "the sign and its disease"),
    Related("emphysema", "bulla", 0.6, "a bulla is emphysema in one place"),
    Related("scarring", "interstitial pattern", 0.5, "fibrosis is both"),
    Related("bronchial wall thickening", "interstitial pattern", 0.5, "both read as increased markings"),
    Related("bronchial wall thickening", "bronchiectasis", 0.5, "diseased airways"),
    Related("interstitial pattern", "bronchiectasis", 0.3, "scarred lung pulls the airways open"),
    Related("scarring", "atelectasis", 0.6, "a linear band may be either"),
    Related("low lung volumes", "atelectasis", 0.3, "shallow breath crowds the bases"),
    # pleura
    Related("pleural thickening", "pleural plaque", 0.7, "a plaque is a thickening in one place"),
    Related("other pleural abnormality", "pleural thickening", 0.7, "something of the pleura, unnamed"),
    Related("other pleural abnormality", "pleural plaque", 0.7, "something of the pleura, unnamed"),
    Related("other pleural abnormality", "pleural effusion", 0.4, "something of the pleura, unnamed"),
    Related("pleural effusion", "pleural thickening", 0.4, "both blunt the angle"),
    Related("scarring", "pleural thickening", 0.5, "apical caps are both"),
    # heart and mediastinum
    Related("cardiomegaly", "enlarged cardiomediastinum", 0.8, "the heart is most of the silhouette", apart=True),
    Related("cardiomegaly", "pericardial effusion", 0.5, "both widen the heart", apart=True),
    Related("hilar enlargement", "lymphadenopathy", 0.7, "nodes are a common cause"),
    Related("hilar enlargement", "pulmonary artery enlargement", 0.7, "the artery is most of the hilum"),
    Related("hilar enlargement", "mass", 0.3, "a hilar mass is both"),
    Related("lymphadenopathy", "mediastinal mass", 0.6, "nodes may form a mass"),
    Related("enlarged cardiomediastinum", "mediastinal mass", 0.6, "a mass widens it"),
    Related("enlarged cardiomediastinum", "lymphadenopathy", 0.5, "nodes widen it"),
    Related("enlarged cardiomediastinum", "aortic aneurysm", 0.5, "an aneurysm widens it"),
    Related("enlarged cardiomediastinum", "tortuous aorta", 0.4, "a long aorta widens it"),
    Related("tortuous aorta", "aortic aneurysm", 0.5, "both are a prominent aorta", apart=True),
    Related("tortuous aorta", "aortic calcification", 0.4, "both are an aged aorta"),
    Related("tracheal deviation", "mediastinal shift", 0.7, "the trachea moves with the mediastinum"),
    Related("pneumomediastinum", "subcutaneous emphysema", 0.4, "the same leak of air"),
    # bones
    Related("other fracture", "rib fracture", 0.7, "a fracture, its bone unnamed"),
    Related("other fracture", "clavicle fracture", 0.7, "a fracture, its bone unnamed"),
    Related("other fracture", "vertebral fracture", 0.6, "a fracture, its bone unnamed"),
    Related("bone deformity", "rib fracture", 0.5, "a healed fracture is a deformity"),
    Related("bone deformity", "vertebral fracture", 0.5, "a wedged vertebra is a deformity"),
    Related("bone deformity", "clavicle fracture", 0.5, "a healed fracture is a deformity"),
    Related("bone deformity", "other fracture", 0.5, "a healed fracture is a deformity"),
    Related("other fracture", "dislocation", 0.4, "an injured joint"),
    Related("kyphosis", "scoliosis", 0.4, "a bent spine"),
    Related("kyphosis", "vertebral fracture", 0.4, "wedged vertebrae bend the spine"),
    Related("kyphosis", "degenerative change", 0.3, "an aged spine"),
    # devices and operations
    Related("central venous catheter", "port", 0.7, "a port ends in a central line"),
    Related("central venous catheter", "swan-ganz catheter", 0.5, "a line through the same vein", apart=True),
    Related("endotracheal tube", "tracheostomy tube", 0.5, "an airway tube", apart=True),
    Related("postsurgical change", "sternal wires", 0.7, "traces of the same operation"),
    Related("postsurgical change", "surgical clips", 0.7, "traces of the same operation"),
    Related("postsurgical change", "prosthetic valve", 0.5, "traces of the same operation"),
    Related("sternal wires", "surgical clips", 0.5, "traces of the same operation"),
    Related("foreign body", "other device", 0.4, "something that does not belong to the body"),
)
# A device that a report does not name is still a device.
UNNAMED_DEVICE = 0.5

# What the reason for the radiograph can make of a sign: (the two names, words of the indication, credit, reason).
IN_CONTEXT: tuple[tuple[frozenset[str], tuple[str, ...], float, str], ...] = (
    (frozenset({"consolidation", "pneumonia"}), INFECTION, 1.0, "with signs of infection they are one statement"),
    (frozenset({"lung opacity", "pneumonia"}), INFECTION, 0.8, "with signs of infection an opacity is read as one"),
    (frozenset({"edema", "heart failure"}), FLUID, 1.0, "in known failure they are one statement"),
    (frozenset({"vascular congestion", "heart failure"}), FLUID, 0.9, "in known failure they are one statement"),
)


_CREDIT = {(name, name): 1.0 for name in OBSERVATIONS}
for _name, _observation in OBSERVATIONS.items():
    if _observation.group is Group.DEVICE and _name not in ("monitoring leads", "other device"):
        _CREDIT[_name, "other device"] = _CREDIT["other device", _name] = UNNAMED_DEVICE
for _row in RELATED:
    _CREDIT[_row.one, _row.other] = _CREDIT[_row.other, _row.one] = _row.credit
_APART = frozenset(frozenset({row.one, row.other}) for row in RELATED if row.apart)
_IMPLIED = frozenset((row.one, row.other) for row in RELATED)


def relatedness(one: str, other: str, indication: str | None = None) -> float:
    """Credit in [0, 1] for naming `one` where `other` is meant: 1 if equal, 0 if unrelated.

    Args:
        one: An observation.
        other: Another one.
        indication: Why the radiograph was taken; it can make a sign and its cause one statement.
    """
    credit = _CREDIT.get((one, other), 0.0)
    if indication and 0.0 < credit < 1.0:
        for names, words, stronger, _ in IN_CONTEXT:
            if names == {one, other} and indicates(words, indication):
                return stronger
    return credit


def restates(one: str, other: str) -> bool:
    """Whether two names in one report may mean one thing: a sign and its cause do, a nodule and a mass do not."""
    return one != other and (one, other) in _CREDIT and frozenset({one, other}) not in _APART


def implies(one: str, other: str) -> bool:
    """Whether naming `one` implies `other`: pneumonia implies opacity, edema implies congestion."""
    return (other, one) in _IMPLIED
