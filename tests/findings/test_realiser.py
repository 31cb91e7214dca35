from dataclasses import replace

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Severity, Side
from cxrlab.findings.lexicon import load_lexicon
from cxrlab.findings.realiser import Realiser, can_lead, kind_of

EFFUSION = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)


def speaker(name="A", seed=0):
    return Realiser(load_lexicon(name), generator(seed))


@pytest.mark.parametrize(
    ("finding", "missing"),
    [
        (Finding("pleural effusion", severity=Severity.MILD), "side"),
        (Finding("pleural effusion", side=Side.LEFT), "severity"),
        (Finding("nodule", side=Side.LEFT, location="mid zone"), "size_mm"),
        (Finding("nodule", side=Side.LEFT, size_mm=9.0), "location"),
        (Finding("enteric tube"), "tip"),
        (replace(EFFUSION, severity=Severity.TRACE), "mild, moderate or severe"),
        (Finding("endotracheal tube", tip="above carina"), "size_mm or tip_mm"),
    ],
)
def test_an_incomplete_finding_is_refused_with_what_it_lacks(finding, missing):
    """A report that left the side out would be wrong, not vague."""
    with pytest.raises(DataError, match=missing):
        for seed in range(30):
            speaker(seed=seed).present(finding, fragment=False)


def test_an_observation_without_words_is_refused():
    with pytest.raises(DataError, match="no words for 'bulla'"):
        speaker().noun(Finding("bulla", side=Side.LEFT))


def test_an_unknown_slot_is_refused():
    lexicon = load_lexicon("A")
    row = replace(lexicon.observations["edema"], nouns=("{sev} {colour} edema",))
    words = Realiser(replace(lexicon, observations={**lexicon.observations, "edema": row}), generator(0))
    with pytest.raises(DataError, match="unknown slot '{colour}'"):
        words.noun(Finding("edema", severity=Severity.MILD))


def test_a_bilateral_effusion_is_plural_and_one_sided_is_not():
    for seed in range(40):
        one, one_plural = speaker(seed=seed).noun(EFFUSION)
        two, two_plural = speaker(seed=seed).noun(replace(EFFUSION, side=Side.BILATERAL))
        assert not one_plural and two_plural
        assert "effusions" not in one and "effusions" in two
        assert one.startswith("a ") and not two.startswith("a ")


def test_the_verb_agrees_with_one_side_or_both():
    hila = Finding("hilar enlargement", side=Side.BILATERAL, severity=Severity.MILD)
    for seed in range(10):
        assert speaker(seed=seed).clause(hila).startswith("both hila are ")
        assert " hilum is " in speaker(seed=seed).clause(replace(hila, side=Side.RIGHT))
        assert " are " in speaker(seed=seed).clause(Finding("edema", severity=Severity.MILD))


def test_pick_prefers_what_was_not_yet_said():
    """With three tries at two options, the second pick is mostly the other one."""
    changed = 0
    for seed in range(200):
        words = speaker(seed=seed)
        changed += words.pick(["x", "y"]) != words.pick(["x", "y"])
    assert changed > 150


@pytest.mark.parametrize(
    ("name", "kind"),
    [("chest tube", "device"), ("rib fracture", "bone"), ("nodule", "lesion"), ("edema", "finding")],
)
def test_kinds(name, kind):
    assert kind_of(Finding(name)) == kind


def test_a_growing_mass_is_not_called_an_increased_mass():
    assert not can_lead(Finding("mass", change=Change.INCREASED))
    assert can_lead(Finding("mass", change=Change.UNCHANGED)) and can_lead(Finding("edema", change=Change.INCREASED))


def test_a_possible_clause_carries_its_hedge_in_the_verb():
    hedges = ("may", "possibly", "questionably", "suspected")
    heart = Finding("cardiomegaly", severity=Severity.MILD, certainty=Certainty.POSSIBLE)
    for seed in range(20):
        assert any(hedge in speaker(seed=seed).clause(heart) for hedge in hedges)


def test_nothing_is_stated_about_change_on_a_first_image():
    assert speaker().change(EFFUSION) == ""
    assert speaker().change(replace(EFFUSION, change=Change.NEW)).startswith(", ")
