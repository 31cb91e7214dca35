from __future__ import annotations

from cxrlab.extraction.report_content import Category
from cxrlab.extraction.rule_oracles import load_descriptions, transcript_descriptions

RULES = load_descriptions("rules", 1)


def test_what_the_victim_said_is_sorted_by_category_and_kind() -> None:
    found = transcript_descriptions(["The heart is enlarged. Both hemidiaphragms are normal in position."], RULES)
    assert found.of(Category.CARDIAC, "abnormal") == ("The heart is enlarged.",)
    assert found.of(Category.DIAPHRAGM, "normal") == ("Both hemidiaphragms are normal in position.",)


def test_where_it_said_nothing_the_oracle_speaks() -> None:
    found = transcript_descriptions(["The heart is enlarged.", "I cannot help with this picture."], RULES)
    assert found.of(Category.AIRWAY, "abnormal") == RULES.of(Category.AIRWAY, "abnormal")
    assert found.of(Category.CARDIAC, "normal") == RULES.of(Category.CARDIAC, "normal")


def test_the_same_words_count_once() -> None:
    found = transcript_descriptions(
        ["The heart is enlarged.", "The heart is enlarged. ", "Cardiomegaly is present."], RULES
    )
    assert found.of(Category.CARDIAC, "abnormal") == ("The heart is enlarged.", "Cardiomegaly is present.")
