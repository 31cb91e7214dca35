from __future__ import annotations

from cxrlab.metrics.chexpert_labels import CHOICES, Choice


def test_a_choice_says_all_of_itself_in_name_signature_and_words() -> None:
    card = Choice("negative", "5", "macro", "f1").card("chexpert", "rules")
    assert card.name == "chexpert5.macro.f1:uncertain-negative"
    assert card.signature.startswith(
        "chexpert5.macro.f1:uncertain-negative|labeler:rules|uncertain:negative|unmentioned:negative|absent-class:0|"
    )
    assert card.about.startswith("CheXpert label F1, mean over the five labels of CheXpert's competition;")
    assert card.about.endswith("uncertain labels counted as negative")
    assert card.quirk and card.identity is None and not card.by_pair


def test_one_observation_has_its_own_name() -> None:
    assert (
        Choice("ignored", "Edema", "observation", "recall").name("chexpert")
        == "chexpert.Edema.recall:uncertain-ignored"
    )


def test_every_way_of_averaging_is_there_for_every_set_and_policy() -> None:
    """2 sets × (4 + 3 + 3 + 3 + 3 + 3 + 1) rates and 14 observations × 4, for each of 3 policies."""
    assert len(CHOICES) == 3 * (2 * 20 + 14 * 4)
