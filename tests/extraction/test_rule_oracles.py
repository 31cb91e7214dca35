import re

import pytest

from cxrlab.core.errors import DataError, UnknownName
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN
from cxrlab.extraction import rule_oracles
from cxrlab.extraction.report_content import Category, distinct, split_by_category
from cxrlab.extraction.rule_oracles import (
    KINDS,
    ORACLES,
    Descriptions,
    avoids_victim_lexicon,
    complete_findings,
    lexicon_phrases,
    load_descriptions,
    shared_vocabulary,
)
from cxrlab.findings.lexicon import load_lexicon, templates
from cxrlab.findings.reader import read


@pytest.fixture(scope="module")
def strong() -> Descriptions:
    return load_descriptions("rules", seed=3)


@pytest.fixture(scope="module")
def weak() -> Descriptions:
    return load_descriptions("rules-weak", seed=3)


@pytest.mark.parametrize("name", ORACLES)
def test_every_oracle_gives_the_same_descriptions_for_a_seed(name):
    descriptions = load_descriptions(name, 1)
    rule_oracles.rules.cache_clear()  # made again, not from the cache
    rule_oracles.rules_weak.cache_clear()
    assert descriptions == load_descriptions(name, 1) != load_descriptions(name, 2)
    for kind in KINDS:
        for category in Category:
            rows = descriptions.of(category, kind)
            assert len(rows) == len(distinct(rows)) >= 4
            assert all(re.fullmatch(r"[A-Z0-9].*\.", text) for text in rows)


def test_an_unknown_oracle_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="no oracle 'rule'.*'rules'"):
        load_descriptions("rule")


def properties(finding: Finding) -> tuple[object, ...]:
    return finding.observation, finding.side, finding.severity, finding.location, finding.tip


def test_it_knows_everything_that_a_phantom_shows_on_every_side_and_in_every_degree(strong):
    """Each description is read as something present; together they tell every side, degree, place and tip."""
    assert sum(strong.counts()["abnormal"].values()) > 1000
    descriptions = set()
    for text in (text for category in Category for text in strong.of(category, "abnormal")):
        present = [finding for finding in read(text) if finding.present]
        assert present, text
        descriptions.update(map(properties, present))
    wanted = {properties(finding) for name in DRAWN for finding in complete_findings(name, generator(0))}
    assert len(wanted) == 276 and wanted <= descriptions


def test_normal_descriptions_state_nothing_present(strong, weak):
    for descriptions in (strong, weak):
        for text in (text for category in Category for text in descriptions.of(category, "normal")):
            assert not any(finding.present for finding in read(text)), text


def test_descriptions_stand_under_the_category_they_speak_of(strong):
    """But for two of 1,500: statements on hila and mediastinum at once."""
    rows = [(c, text) for kind in KINDS for c in Category for text in strong.of(c, kind)]
    strays = [text for category, text in rows if split_by_category(text)[category] != text]
    assert len(strays) <= 2


def test_the_weak_one_knows_four_things_a_category_without_side_and_degree(weak):
    assert {n for by in weak.counts().values() for n in by.values()} == {4}
    found = [f for category in Category for text in weak.of(category, "abnormal") for f in read(text)]
    assert len(found) >= 18 and all(f.present and f.side is None and f.severity is None for f in found)


def test_no_phrase_of_the_victims_lexicon_stands_in_it(strong, weak):
    """Phrases of three words and more between the slots, found here by plain text search."""
    runs = {
        tuple(re.findall(r"[a-z]+", run))
        for template in templates(load_lexicon("A"))
        for side in (r"\1", r"\2")
        for run in re.split(r"\{\w+\}", re.sub(r"[\[<]([^|<>\[\]]*)\|([^|<>\[\]]*)[\]>]", side, template).lower())
    }
    phrases = [f" {' '.join(run)} " for run in runs if len(run) >= 3]
    assert len(phrases) > 400
    text = " | ".join(
        " ".join(re.findall(r"[a-z]+", t.lower())) for descriptions in (strong, weak) for t in descriptions.texts()
    )
    assert [phrase for phrase in phrases if phrase in f" {text} "] == []


def test_the_filter_knows_a_phrase_of_the_victim():
    assert "the lungs are clear" in lexicon_phrases("A")
    assert not avoids_victim_lexicon("Today the lungs are clear, one may say.") and avoids_victim_lexicon(
        "Clear are the lungs."
    )


def test_an_oracle_that_leaves_a_category_out_is_refused():
    full = {category: ("Text.",) for category in Category}
    without = {category: rows for category, rows in full.items() if category is not Category.CARDIAC}
    with pytest.raises(DataError, match="no description for normal cardiac"):
        Descriptions(abnormal=full, normal=without)


def test_distinct_minds_neither_case_nor_marks():
    assert distinct(["A  nodule.", "a nodule", "", "?", "Two nodules."]) == ("A nodule.", "Two nodules.")


def test_shared_words_are_counted_over_the_oracles():
    rows = {category: ("Big heart.",) for category in Category}
    descriptions = Descriptions(abnormal=rows, normal={category: ("Small heart, clear.",) for category in Category})
    found = shared_vocabulary(descriptions, ["The heart is small.", "small"])
    assert found == {"oracle_words": 4, "text_words": 4, "shared": 2, "share": 0.5}
