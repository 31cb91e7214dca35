import re
from collections import Counter

import pytest

from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.extraction.report_content import Category, category_of, sentences_of, split_by_category
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient

A, B, C, D, E = Category


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


def test_each_kind_of_sentence_finds_its_place():
    report = (
        "The trachea is midline. Small left pleural effusion. The heart is enlarged. "
        "Free air under the right hemidiaphragm. The bones are intact. A pacemaker is in place. Normal study."
    )
    assert split_by_category(report) == {
        A: "The trachea is midline.",
        B: "Small left pleural effusion.",
        C: "The heart is enlarged.",
        D: "Free air under the right hemidiaphragm.",
        E: "The bones are intact. A pacemaker is in place. Normal study.",
    }


def test_what_is_there_decides_before_what_is_absent():
    """One finding in the heart against two absent ones in the lungs."""
    report = "The heart is enlarged without pleural effusion or pneumothorax."
    assert split_by_category(report)[C] == report
    assert split_by_category("No pleural effusion, pneumothorax, or cardiomegaly.")[B]


def test_numbers_and_headings_go_and_a_heading_helps_where_no_word_does():
    report = "FINDINGS: 1. Heart: Normal. 2. Lungs: Clear. 3. Tip 2.5 cm above the carina."
    texts = [(sentence.text, sentence.heading) for sentence in sentences_of(report)]
    assert texts == [("Normal.", "Heart"), ("Clear.", "Lungs"), ("Tip 2.5 cm above the carina.", "Lungs")]
    assert split_by_category(report) == {A: "Tip 2.5 cm above the carina.", B: "Clear.", C: "Normal.", D: "", E: ""}


def test_lines_without_full_stops_are_sentences_and_wrapped_ones_are_not():
    assert [s.text for s in sentences_of("Lungs clear\nHeart normal")] == ["Lungs clear", "Heart normal"]
    assert [s.text for s in sentences_of("- Lungs clear\n- Heart is\nnot large")] == [
        "Lungs clear",
        "Heart is not large",
    ]


@pytest.mark.parametrize("text", ["", " \n", "...", "1.", "Lungs:"])
def test_a_report_without_a_sentence_says_nothing_of_any_category(text):
    assert split_by_category(text) == dict.fromkeys(Category, "")


def test_the_span_points_at_the_words():
    report = "1. Heart: Large  heart. 2. No effusion."
    assert [report[slice(*s.span)] for s in sentences_of(report)] == ["Large  heart.", "No effusion."]


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_no_word_of_a_report_is_lost_or_doubled(lexicon):
    """Whatever the style: only numbers of a list and headings before a colon go."""
    seen = 0
    for patient in range(15):
        for visit in draw_patient(5, f"p{patient}").visits:
            report = narrate(visit, 5, f"p{patient}-{visit.number}", lexicon).report.findings
            bare = re.sub(r"(^|(?<=[.] ))(\d+[.] |[A-Z][a-z ]+: )", "", report)
            assert words(" ".join(split_by_category(report).values())) == words(bare)
            seen += 1
    assert seen > 20


def test_every_observation_has_a_category_and_the_papers_examples_stand_with_everything_else():
    assert {category_of(name) for name in OBSERVATIONS} == set(Category)
    rest = ("enlarged cardiomediastinum", "rib fracture", "subcutaneous emphysema", "chest tube", "prosthetic valve")
    assert {category_of(name) for name in (*rest, "pacemaker", "enteric tube")} == {E}
    assert category_of("endotracheal tube") is category_of("hilar enlargement") is A
