"""Violations: one planted difference, one kind named."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.records import Report
from cxrlab.data.structuring import checks
from cxrlab.data.structuring.checks import faults, violations

SOURCE = (
    "Small left pleural effusion. Possible pneumonia at the right base. No pneumothorax. ET tube 4 cm above the carina."
)


def judged(answer: str, source: str = SOURCE) -> tuple[str, ...]:
    return violations(Report(findings=source), Report(findings=answer))


@every_row(
    ("old", "new", "expected"),
    [
        ("No pneumothorax.", "No pneumothorax. Cardiomegaly.", "a finding appears: cardiomegaly"),
        ("Small left pleural effusion.", "", "a finding disappears: pleural effusion"),
        ("No pneumothorax.", "", "a denial disappears: pneumothorax"),
        ("No pneumothorax.", "No pneumothorax. No rib fracture.", "a denial appears: rib fracture"),
        ("Possible pneumonia", "Pneumonia", "the certainty differs: pneumonia"),
        ("left", "right", "the side differs: pleural effusion"),
        ("at the right base", "in the right upper lobe", "the place differs: pneumonia"),
        ("Small", "Large", "the degree differs: pleural effusion"),
        ("4 cm", "2 cm", "the tip of a device differs: endotracheal tube"),
    ],
)
def test_one_difference_is_one_violation(old: str, new: str, expected: str) -> None:
    found = judged(SOURCE.replace(old, new))
    assert expected in found
    assert set(found) <= {expected, checks.NUMBER}  # another height is also another number


def test_a_size_that_differs() -> None:
    assert judged("A 12 mm nodule in the right upper lobe.", "A 9 mm nodule in the right upper lobe.") == (
        "the size differs: nodule",
        checks.NUMBER,
    )


def test_the_same_in_other_words_is_accepted() -> None:
    """Order, headings and the section in which something stands do not matter."""
    source = Report(findings=SOURCE, impression="Left effusion.")
    other = Report(
        findings="No pneumothorax. The tip of the endotracheal tube is 4 cm above the carina.",
        impression="There is a small pleural effusion on the left. There may be pneumonia at the right lung base.",
    )
    assert violations(source, other) == ()


def test_taking_out_a_change_is_no_violation_and_leaving_it_is_one() -> None:
    source = "The left effusion has grown and is now moderate. The right pneumothorax has resolved."
    assert judged("Moderate left effusion. No right pneumothorax.", source) == ()
    assert judged(source, source) == (
        "it mentions an earlier image: pleural effusion",
        "it mentions an earlier image: pneumothorax",
    )


def test_swapped_sides_are_caught() -> None:
    """Each side keeps its own degree: the sets of sides and of degrees alone would agree."""
    found = judged("Large left effusion. Small right effusion.", "Small left effusion. Large right effusion.")
    assert "the degree differs: pleural effusion" in found


def test_age_and_sex_are_faults() -> None:
    assert faults(Report(indication="A 45-year-old man.")) == (checks.PATIENT,)
    assert faults(Report(findings="Old rib fracture of the left 5th rib.")) == ()


@every_row(
    ("findings", "expected"),
    [
        ("The left opacity is grossly stable.", (checks.STABLE,)),
        ("Stable left opacity.", (checks.STABLE,)),
        (
            "The left opacity is stable compared with the prior study.",
            ("it mentions an earlier image", checks.STABLE),
        ),
        ("The left opacity has been stable since yesterday.", ("it mentions an earlier image: lung opacity",)),
        ("The left opacity is unchanged and stable.", ("it mentions an earlier image: lung opacity", checks.STABLE)),
        ("The left opacity is unchanged.", ("it mentions an earlier image: lung opacity",)),
    ],
)
def test_stable_alone_is_flagged_and_a_comparison_is_not(findings: str, expected: tuple[str, ...]) -> None:
    """The example in LLaVA-Rad's supplement keeps "stable" and rewrites what is compared."""
    assert faults(Report(findings=findings)) == expected
    assert checks.STABLE in checks.FLAGGED and checks.COMPARES not in checks.FLAGGED


@every_row(
    ("indication", "expected"),
    [
        ("___ year old woman with ileus.", (checks.MASKED_AGE,)),
        ("___F with cough.", ()),
        ("XXXX-year-old male with fever.", (checks.MASKED_AGE,)),
        ("___ year old woman, her husband is a man.", (checks.PATIENT,)),
        ("61 year old woman.", (checks.PATIENT,)),
    ],
)
def test_a_masked_age_in_the_indication_is_flagged(indication: str, expected: tuple[str, ...]) -> None:
    assert faults(Report(indication=indication)) == expected
    in_findings = faults(Report(findings=indication))
    assert checks.MASKED_AGE not in in_findings and (checks.PATIENT in in_findings) == bool(expected)


def test_speaking_where_the_source_is_silent() -> None:
    """Nothing about the film in the source, a normal film in the answer: that is invented."""
    assert checks.SPEAKS in judged("The lungs are clear.", "See separate dictation.")


def test_numbers_of_a_list_are_no_numbers() -> None:
    assert judged("1. Left effusion. 2. Edema.", "Left effusion. Edema.") == ()


@pytest.mark.parametrize(
    "left",
    [
        "Heart size is stable compared with prior.",
        "Edema. No change since the prior film.",
        "Left effusion as compared to the prior exam.",
        "Comparison with the radiograph of yesterday. No pneumothorax.",
        "Edema on 3/4/2019.",
    ],
)
def test_a_comparison_is_seen_where_no_finding_carries_it(left: str) -> None:
    assert any(why.startswith(checks.COMPARES) for why in judged(left, left))


@pytest.mark.parametrize(
    "kept",
    [
        "Clips from prior cholecystectomy.",
        "Sequelae of prior granulomatous disease.",
        "The right hilum is prominent compared to the left.",
        "Nodule. Comparison with earlier films would be helpful.",
    ],
)
def test_what_only_sounds_like_a_comparison_is_none(kept: str) -> None:
    """Earlier illness that shows, one side beside the other, and advice."""
    assert judged(kept, kept) == ()


@every_row(
    ("source", "answer", "expected"),
    [
        (
            Report(findings="Nodule."),
            Report(findings="Nodule. The lungs are otherwise clear."),
            checks.NORMAL_APPEARS,
        ),
        (Report(findings="Nodule. The lungs are clear."), Report(findings="Nodule."), checks.NORMAL_DISAPPEARS),
        (
            Report(findings="The lungs are clear."),
            Report(findings="Los pulmones están limpios."),
            checks.NORMAL_DISAPPEARS,
        ),
        (
            Report(findings="Nodule."),
            Report(findings="Nodule.", impression="CT is recommended."),
            checks.ADVICE_APPEARS,
        ),
        (
            Report(findings="Nodule.", impression="Recommend CT in 3 months."),
            Report(findings="Nodule."),
            checks.ADVICE_DISAPPEARS,
        ),
        (Report(findings="Edema."), Report(findings="Edema.", indication="Fever after surgery."), checks.SECTION),
        (Report(findings="Edema."), Report(findings="Edema.", examination="PA and lateral chest."), checks.SECTION),
        (
            Report(indication="Cough.", findings="Edema."),
            Report(indication="Cough, pneumothorax.", findings="Edema."),
            "a finding appears: pneumothorax",
        ),
        (
            Report(indication="72 yo man with history of CHF, dyspnea.", findings="Edema."),
            Report(indication="History of CHF, dyspnea.", findings="Edema."),
            checks.HISTORY,
        ),
    ],
)
def test_what_no_finding_carries(source: Report, answer: Report, expected: str) -> None:
    assert violations(source, answer) == (expected,)


def test_a_section_made_of_the_words_of_another_is_accepted() -> None:
    """The technique often stands in the findings; a model may put it where it belongs."""
    source = Report(findings="Two views of the chest. No pneumothorax.")
    assert violations(source, Report(examination="Two views of the chest.", findings="No pneumothorax.")) == ()


@pytest.mark.parametrize(
    "text", ["Woman with cough.", "71F with cough.", "Elderly female, cough.", "Boy, 3 months old."]
)
def test_sex_is_a_fault_without_an_age(text: str) -> None:
    assert checks.PATIENT in faults(Report(indication=text))
