from dataclasses import replace

import pytest
from lexicon_check import check_lexicon, needed_slots, shared_phrases
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import DRAWN, Change
from cxrlab.findings.lexicon import load_lexicon, templates


@pytest.mark.parametrize("name", ["A", "B"])
def test_both_lexicons_are_sound(name):
    """The check raises on the first unsound entry; planted ones below show that it does."""
    assert check_lexicon(load_lexicon(name)) is None


def test_the_lexicons_share_no_phrase():
    """B must be able to show that a model learned findings and not sentences."""
    assert shared_phrases(load_lexicon("A"), load_lexicon("B")) == set()
    assert len(shared_phrases(load_lexicon("A"), load_lexicon("A"))) > 500


def test_every_property_needs_its_slot():
    assert {"in"} in needed_slots("nodule") and {"size"} in needed_slots("nodule")
    assert {"size"} not in needed_slots("nodule", gone=True)
    assert needed_slots("sternal wires") == []
    assert all(isinstance(needed_slots(name), list) for name in DRAWN)


def planted(name="pleural effusion", **fields):
    """Lexicon A with one observation's phrases changed."""
    lexicon = load_lexicon("A")
    row = replace(lexicon.observations[name], **fields)
    return replace(lexicon, observations={**lexicon.observations, name: row})


def without(lexicon, field, key):
    return replace(lexicon, **{field: {k: v for k, v in getattr(lexicon, field).items() if k != key}})


A = load_lexicon("A")
EFFUSION = A.observations["pleural effusion"].nouns
BROKEN = [
    (planted(nouns=EFFUSION[:4]), "'pleural effusion' has 4 ways to be said, not 6"),
    (planted(nouns=(*EFFUSION, "a {side} effusion")), r"lacks a slot \{adv\} or \{sev\}"),
    (planted(nouns=(*EFFUSION, "a {sev} effusion")), r"lacks a slot \{in\} or \{on\} or \{side\}"),
    (planted(nouns=(*EFFUSION, "a {sev} {side} {colour} effusion")), r"unknown slot '\{colour\}'"),
    (planted(nouns=(*EFFUSION, "a possible {sev} {side} effusion")), "hedges what is certain"),
    (planted(nouns=(*EFFUSION, "a {sev} {side} effusion[|s")), "broken fork"),
    (planted(clauses=("{sev} fluid lies {on}",)), "no verb that can be hedged"),
    (planted(absent=()), "a name when absent"),
    (planted(scale="none"), "'pleural effusion' is graded and needs a scale"),
    (planted(scale="colour"), "the scale 'colour' has no word for 'mild'"),
    (without(A, "scales", "adverb"), "the grade 'moderate' has 5 words over all scales, not 6"),
    (without(A, "observations", "mass"), "'mass' has no phrases"),
    (without(A, "indications", "trauma"), "'indication, trauma' has 0 ways"),
    (without(A, "normal", "heart"), "'normal heart' has 0 ways"),
    (without(A, "resolved", "bone"), "'resolved, bone' has 0 ways"),
    (without(A, "tips", "chest tube"), "the tip 'apex' of 'chest tube' has no words"),
    (without(A, "zones", "mid zone"), "the place 'mid zone' of 'lung opacity' has no words"),
    (replace(A, changes={**A.changes, "lesion": {Change.NEW: ("new",)}}), "'new, lesion' has 1 ways"),
    (replace(A, full=(*A.full, "something is seen")), "the frame 'something is seen' has no noun phrase"),
    (replace(A, full=(*A.full, "there may be {np}")), "the frame 'there may be {np}' hedges"),
    (replace(A, full=tuple(f"{{np}} is {i}" for i in range(6))), "cannot be joined"),
    (replace(A, denials=(*A.denials, ("nothing", "or"))), "the denial 'nothing' has no list"),
    (replace(A, comparisons=(*A.comparisons, "Old film")), "the comparison 'Old film' has no interval"),
]


@every_row(("lexicon", "fault"), BROKEN, ids=[fault for _, fault in BROKEN])
def test_a_planted_fault_is_refused_by_name(lexicon, fault):
    with pytest.raises(DataError, match=fault):
        check_lexicon(lexicon)


def test_templates_reach_every_field():
    """One text from each kind of field."""
    texts = set(templates(A))
    assert {A.places[0][1], A.zones["mid zone"], A.full[0], A.denials[0][0], A.leads[Change.NEW][0]} <= texts
