import re
from collections import Counter

import pytest

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Presence, Severity, Side
from cxrlab.findings.narrator import narrate
from cxrlab.findings.report_edits import EDITS, NarratedVisit, omission, paraphrase, sentence_order


@pytest.fixture(scope="module")
def narrated(visits):
    return [NarratedVisit.of(visit, 4, f"t{number}") for number, visit in enumerate(visits[:600])]


@pytest.fixture(scope="module")
def edited(narrated):
    return {name: [(t, e) for t in narrated if (e := row.edit(t)) is not None] for name, row in EDITS.items()}


def words(text):
    return re.findall(r"\w+(?:\.\d+)?", text.lower())


def changed(edit):
    """Words that the candidate lost and gained."""
    before, after = Counter(words(edit.reference)), Counter(words(edit.candidate))
    return before - after, after - before


def test_every_edit_finds_reports_and_changes_the_text(edited):
    for name, cases in edited.items():
        assert len(cases) >= 15, name
        assert all(edit.reference != edit.candidate for _, edit in cases), name


def test_harmful_and_harmless_edits_are_the_ten_that_are_requested():
    assert [name for name, row in EDITS.items() if row.must_fall] == [
        "negation flip", "side flip", "severity flip", "measurement change", "omission", "invention",
    ]  # fmt: skip
    assert [name for name, row in EDITS.items() if not row.must_fall] == [
        "paraphrase", "casing", "sentence order", "mask tokens",
    ]  # fmt: skip


def test_edits_are_the_same_each_time(narrated):
    for row in EDITS.values():
        assert row.edit(narrated[3]) == row.edit(narrated[3])


def test_a_side_flip_swaps_left_and_right_and_nothing_else(edited):
    for _, edit in edited["side flip"]:
        lost, gained = changed(edit)
        assert {*lost, *gained} == {"left", "right"} and lost.total() == 1


def test_severity_and_size_change_one_or_two_words(edited):
    for name in ("severity flip", "measurement change"):
        for _, edit in edited[name]:
            lost, gained = changed(edit)
            assert 1 <= len(set(lost) - {"a", "an"}) <= 2 and len(lost) == len(gained)
    sizes = [words(" ".join(changed(edit)[0])) for _, edit in edited["measurement change"]]
    assert all(any(w[0].isdigit() for w in row) for row in sizes)


def test_a_negation_flip_adds_a_denial_of_what_was_there(edited):
    for narrated, edit in edited["negation flip"]:
        assert len(re.findall(r"\bNo ", edit.candidate)) == len(re.findall(r"\bNo ", edit.reference)) + 1
        assert edit.reference == narrated.text


def test_an_omission_takes_one_sentence_and_leaves_the_others(edited):
    for narrated, edit in edited["omission"]:
        lost, gained = changed(edit)
        assert lost and not gained
        assert not re.search(r"\d+\. \d+\. |: \.|  ", edit.candidate), edit.candidate
        assert len(edit.candidate) < len(narrated.text)


def test_an_invention_is_appended_and_not_denied_before(edited):
    for narrated, edit in edited["invention"]:
        assert edit.candidate.startswith(narrated.text + " ") and edit.candidate.endswith(".")
        assert (
            narrated.denied.isdisjoint({"lung opacity"}) or "consolidation" not in edit.candidate[len(narrated.text) :]
        )


def test_a_paraphrase_says_the_same_in_other_words(visits):
    visit = next(v for v in visits if len(v.present) > 2)
    narrated = NarratedVisit.of(visit, 4, "x")
    again = narrate(visit, 4, "x/again", "B")
    assert paraphrase(narrated).candidate == again.report.findings != narrated.text
    assert [f.observation for f in again.findings[: len(visit.findings)]] == [f.observation for f in narrated.findings]


def test_case_changes_no_letter(edited):
    assert all(edit.candidate.lower() == edit.reference.lower() for _, edit in edited["casing"])
    assert {edit.candidate.isupper() for _, edit in edited["casing"]} == {True, False}


def test_another_order_keeps_every_sentence(edited):
    for _, edit in edited["sentence order"]:
        assert Counter(words(edit.candidate)) == Counter(words(edit.reference))


def test_numbered_and_headed_text_keeps_its_order(image):
    visit = image()
    for text in ("1. No edema. 2. Heart normal.", "Lungs: No edema. Heart: Normal.", "No edema."):
        assert sentence_order(NarratedVisit(visit, 1, "x", text, (), frozenset())) is None


def test_masks_are_added_and_nothing_is_lost(edited):
    for _, edit in edited["mask tokens"]:
        assert re.sub(r"(XXXX|___)\.? ?", "", edit.candidate).strip() == edit.reference


def test_a_sentence_under_a_heading_is_not_taken_out_alone(image):
    """ "Lungs: Heart: normal." would no longer be a report."""
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    text = "Pleura: Small left pleural effusion. Heart: Normal size."
    narrated = NarratedVisit(
        image(effusion), 1, "x", text, (Finding(**{**vars(effusion), "span": (8, 35)}),), frozenset()
    )
    assert narrated.sentences and omission(narrated) is None


def test_hedged_joined_and_repeated_findings_are_left_alone(narrated):
    for report in narrated:
        names = Counter(f.observation for f in report.findings)
        for finding in report.sentences:
            assert finding.presence is Presence.PRESENT and finding.certainty == "certain"
            assert names[finding.observation] == 1
            assert report.text[finding.span[1]] == "."
