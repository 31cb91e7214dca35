from __future__ import annotations

from itertools import product

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Certainty, Presence, Side
from cxrlab.extraction.defence.defences import Coarse, Plain
from cxrlab.extraction.defence.finding_preservation import KEPT, canonical
from cxrlab.findings.reader import read


def core(text: str) -> set[tuple[str, ...]]:
    return {tuple(str(getattr(finding, name)) for name in KEPT) for finding in read(text)}


def test_degree_place_size_and_wording_go_and_findings_stay() -> None:
    text = "1. A large effusion in the left hemithorax is noted, worse than before. 2. There may be mild edema."
    assert Coarse().worded(text) == "Possible edema. Left pleural effusion is present."


def test_a_tube_in_the_wrong_place_stays_there() -> None:
    text = "The endotracheal tube terminates in the right main bronchus."
    assert Coarse().worded(text) == "Endotracheal tube with its tip in the right main bronchus is present."


def test_a_denial_with_a_degree_and_a_sentence_that_was_not_understood_are_kept() -> None:
    assert Coarse().worded("There is no large pleural effusion.") == "No large pleural effusion."
    assert "No left consolidation in the lower zone." in Coarse().worded("No consolidation in the left lower zone.")


def test_plain_words_keep_every_detail() -> None:
    text = (
        "The image shows a 14 mm nodule in the left upper zone, larger than on the prior study. The effusion has gone."
    )
    expected = "14 mm left nodule in the upper zone is present, increased since the prior study."
    assert Plain().worded(text).startswith(expected)
    assert "The prior pleural effusion has resolved." in Plain().worded(text)
    assert Plain().worded("Mild edema is seen.") == "Mild edema is present."


def test_two_nodules_stay_two() -> None:
    text = "There is a 6 mm nodule in the left upper zone. There is a 9 mm nodule in the left lower zone."
    expected = "Left nodule in the lower zone is present. Left nodule in the upper zone is present."
    assert Coarse().worded(text) == expected
    assert Coarse().worded("There is a 6 mm nodule in the left upper zone.") == "Left nodule is present."


def test_every_report_says_the_same_in_fixed_sentences_and_twice_is_once(
    reports: list[str], other_words: list[str]
) -> None:
    for defence, report in product((Coarse(), Plain()), (*reports, *other_words)):
        text = defence.worded(report)  # raises where a claim changes
        assert core(text) == core(report)
        assert defence.worded(text) == text
        assert text != report


def test_reports_that_differ_in_wording_alone_come_out_alike() -> None:
    one = "Small left pleural effusion is seen. There is no pneumothorax."
    two = "No pneumothorax identified. The image shows a moderate effusion in the left hemithorax."
    assert Coarse().worded(one) == Coarse().worded(two)


def test_every_row_of_the_vocabulary_has_its_sentence() -> None:
    """Each observation, present, possible and absent, with every side that it can have, and every tip."""
    drops = Coarse.drops
    for name, row in OBSERVATIONS.items():
        for side in (None, *Side) if row.sided else (None,):
            for certainty in Certainty:
                assert canonical(Finding(name, certainty=certainty, side=side), drops), name
            assert canonical(Finding(name, presence=Presence.ABSENT, side=side), drops) is not None, name
    for name, tips in TIPS.items():
        for tip in tips:
            assert canonical(Finding(name, tip=tip), drops), (name, tip)
