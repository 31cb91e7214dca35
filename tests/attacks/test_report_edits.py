from __future__ import annotations

from cxrlab.attacks.objectives import present_observations, with_finding, without_finding
from cxrlab.core.vocabulary import OBSERVATIONS

BOTH = "There is a small left pleural effusion. There is cardiomegaly."


def test_a_finding_is_removed_from_the_text_and_denied() -> None:
    assert without_finding(BOTH, "pleural effusion") == "There is cardiomegaly. There is no pleural effusion."
    assert without_finding(BOTH[:39], "pleural effusion") == "There is no pleural effusion."
    # What is said once more is removed once more; a point within a number ends no sentence.
    twice = "A 1.5 cm left nodule is seen. The heart is normal. The nodule has grown."
    assert without_finding(twice, "nodule") == "The heart is normal. There is no nodule."


def test_a_finding_is_invented_and_its_denial_is_left_out() -> None:
    report = "No pneumothorax. The lungs are clear."
    assert with_finding(report, "pneumothorax") == "There is pneumothorax. The lungs are clear."
    assert with_finding("", "pneumothorax") == "There is pneumothorax."


def test_every_observation_can_be_removed_and_invented() -> None:
    """What the texts say is read again: an attack along a text that says something else would aim elsewhere."""
    for name in OBSERVATIONS:
        assert name in present_observations(with_finding("The lungs are clear. The heart is normal.", name))
        assert name not in present_observations(without_finding(f"There is {name}. No fracture.", name))
