from __future__ import annotations

from cxrlab.data.source_tables import strongest, to_chexpert_labels


def test_a_presence_outweighs_a_doubt_and_a_doubt_an_absence() -> None:
    assert strongest([0, -1, 1]) == 1 and strongest([0, -1]) == -1 and strongest([0, 0]) == 0
    assert strongest([]) is None


def test_an_absence_is_stated_only_where_the_own_label_is_as_wide() -> None:
    """No rib fracture is not no fracture; no pneumothorax is no pneumothorax."""
    own = {"pneumothorax": 0, "chest tube": 0, "acute rib fracture": 0}
    assert to_chexpert_labels("candid-ptx", own, ("pneumothorax",)) == {"Pneumothorax": 0}
    assert to_chexpert_labels("candid-ptx", own) == {}


def test_two_own_labels_of_one_observation_give_the_stronger() -> None:
    assert to_chexpert_labels("vindr-cxr", {"Rib fracture": -1, "Clavicle fracture": 1}) == {"Fracture": 1}


def test_no_finding_is_never_uncertain_and_unknown_names_state_nothing() -> None:
    assert to_chexpert_labels("vindr-cxr", {"No finding": -1, "not a label": 1}) == {}
