"""The rules: named sentences, whole reports, and what must never happen to a finding."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tables import every_row

from cxrlab.core.records import Report
from cxrlab.data.structuring import rules
from cxrlab.data.structuring.checks import comparing, differences, reading_of
from cxrlab.data.structuring.rules import CLAUSES, COURSES, LONGEST, STATES, correct_typos, present_state, structure
from cxrlab.data.structuring.sentences import reason
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient

pytestmark = pytest.mark.slow

CASES = json.loads((Path(__file__).parent / "cases" / "sentences.json").read_text())


@every_row("case", CASES, ids=lambda case: case["name"])
def test_a_sentence(case: dict[str, str | None]) -> None:
    assert present_state(str(case["before"])) == case["after"], case["why"]


@every_row(
    ("before", "after"),
    [
        ("___ year old woman with cough, evaluate for pneumonia.", "Cough, evaluate for pneumonia."),
        ("45yo M with history of COPD, now with fever", "Fever."),
        ("This is a 76-year-old female, with shortness of breath.", "Shortness of breath."),
        ("Woman with back pain, age 91.", "Back pain."),
        ("Weakness, man aged 47.", "Weakness."),
        ("History of lung cancer", "History of lung cancer."),
        ("83 year old man", None),
        ("ICU man, age 82, daily evaluation.", "ICU, daily evaluation."),
        ("Preoperative woman, age 31.", "Preoperative."),
        ("Patient is an XXXX-year-old man with history of gout, fevers.", "Fevers."),
        ("Gravely ill woman aged 78.", "Gravely ill."),
        ("XXXX-year-old pregnant woman with a cough.", "Pregnant with a cough."),
        ("___F with h/o asthma // eval for pneumonia", "Eval for pneumonia."),
        ("", None),
        (None, None),
    ],
)
def test_the_reason_without_the_person(before: str | None, after: str | None) -> None:
    """History goes where a symptom remains; alone it is the reason itself."""
    assert reason(before) == after


def test_findings_move_out_of_a_merged_impression() -> None:
    ruled = structure(
        Report(
            impression="1. Opacity in the right base, concerning for pneumonia. 2. Unchanged small left effusion.\n"
            "3. No pneumothorax. 4. Recommend follow up."
        )
    )
    assert ruled.report == Report(
        findings="Small left effusion. No pneumothorax.",
        impression="Opacity in the right base, concerning for pneumonia. Recommend follow up.",
    )


def test_a_heading_moves_with_what_it_heads_and_advice_stays() -> None:
    ruled = structure(
        Report(impression="Chest. Left effusion. Left shoulder. No fracture. Further evaluation with CT is suggested.")
    )
    assert ruled.report == Report(
        findings="Chest. Left effusion. Left shoulder. No fracture.",
        impression="Further evaluation with CT is suggested.",
    )
    assert structure(Report(impression="See above.")).report == Report(impression="See above.")


def test_an_impression_beside_findings_stays_one() -> None:
    ruled = structure(Report(findings="Small left effusion.", impression="Small left effusion."))
    assert (ruled.report.findings, ruled.report.impression) == ("Small left effusion.", "Small left effusion.")


def test_the_comparison_section_goes_and_the_examination_stays() -> None:
    ruled = structure(Report(examination="Chest, PA.", comparison="___.", findings="Clear lungs."))
    assert ruled.report == Report(examination="Chest, PA.", findings="Clear lungs.")


def test_typing_errors_are_corrected_before_anything_is_compared() -> None:
    assert structure(Report(findings="Small left plural effussion .")).report.findings == "Small left pleural effusion."


def test_a_report_without_text_gives_nothing() -> None:
    assert structure(Report()).report == Report()


def test_a_change_that_alters_the_whole_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewriting that loses a finding of the whole text is undone; the harmless one beside it stays."""
    bad = {"Left effusion.": ("Clear.", False, True), "Unchanged edema.": ("Edema.", False, True)}
    monkeypatch.setattr(rules, "_understood", lambda sentence: bad[sentence])
    ruled = structure(Report(findings="Left effusion. Unchanged edema."))
    assert (ruled.report.findings, ruled.restored) == ("Left effusion. Edema.", 1)


def test_several_bad_changes_are_all_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"Left effusion.": (None, False, True), "Edema.": (None, False, True)}
    monkeypatch.setattr(rules, "_understood", lambda sentence: bad[sentence])
    ruled = structure(Report(findings="Left effusion. Edema."))
    assert (ruled.report.findings, ruled.restored) == ("Left effusion. Edema.", 2)


def test_where_sentences_alone_cannot_do_it_the_sections_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sentences put together lose a finding, the sections of the source are kept."""
    monkeypatch.setattr(rules, "_report", lambda source, findings, impression: Report())
    assert structure(Report(impression="Left effusion.")).report == Report(impression="Left effusion.")


def test_a_change_that_cannot_be_taken_out_is_counted() -> None:
    """Here the word of change and the degree cannot be distinguished, so the sentence stays and says so."""
    ruled = structure(Report(findings="Decreased slightly elevated left hemidiaphragm."))
    assert ruled.compares == 1 and ruled.report.findings == "Decreased slightly elevated left hemidiaphragm."


def test_a_sentence_without_end_is_left_alone() -> None:
    """Patterns may take the square of the length; beyond a thousand characters nothing is a sentence."""
    long = "left effusion has increased and " * 200
    assert len(long) > LONGEST and present_state(long) == long


def test_every_row_says_why() -> None:
    assert all(row.reason for row in (*CLAUSES, *COURSES, *STATES))


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_narrated_reports_keep_every_finding(lexicon: str) -> None:
    """500 invented visits of each lexicon: findings the same in all, a comparison left in at most one in a hundred."""
    visits = [visit for number in range(250) for visit in draw_patient(23, f"p{number}").visits][:500]
    reports = [narrate(visit, 23, f"s{number}", lexicon).report for number, visit in enumerate(visits)]
    compared = left = 0
    for report in reports:
        ruled = structure(report)
        before = reading_of(correct_typos(report))
        assert differences(before, reading_of(ruled.report)) == ()
        compared += any(finding.change is not None for finding in before)
        left += bool(ruled.compares)
    assert compared > 100 and left <= 5


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.full
def test_real_reports_keep_every_finding(real_data: Path) -> None:
    """Every report of Open-I: the same findings; of those that compare, at least six in seven no longer do."""
    with (real_data / "openi" / "indiana_reports.csv").open(newline="", encoding="utf-8") as stream:
        rows = [(row["findings"] or None, row["impression"] or None) for row in csv.DictReader(stream)]
    compared = left = altered = 0
    for findings, impression in rows:
        report = Report(findings=findings, impression=impression)
        ruled = structure(report)
        before = reading_of(correct_typos(report))
        altered += bool(differences(before, reading_of(ruled.report)))
        compared += bool(comparing(correct_typos(report)))
        left += bool(ruled.compares)
    count = len(rows)  # a failed assertion shows what it names, and the rows are patients' words
    assert count > 3800 and altered == 0 and compared > 500 and left <= compared / 7


@pytest.mark.parametrize("start", ["", "The heart is ", "Effusion, ", "Effusion is ", "No "])
@pytest.mark.parametrize(
    "words",
    [
        "not significantly ",
        "from prior study of 3/4 ",
        "about the same ",
        "the same new ",
        "and ",
        "___ ",
        "in the interval ",
    ],
)
def test_no_sentence_is_read_in_every_way_there_is(start: str, words: str) -> None:
    """Words that a pattern could read in two ways, over and over: if the ways multiplied, this would never end."""
    sentence = (start + words * LONGEST)[: LONGEST - 5] + " zq"
    assert len(present_state(sentence)) <= len(sentence), "words are taken out, hardly ever put in"
