import math

import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.extraction.attack_rounds import Enriched, contradictions, enrich, enrichment_summary, keep_own_reports
from cxrlab.extraction.config import Shares
from cxrlab.extraction.report_content import Category
from cxrlab.extraction.rule_oracles import Descriptions

TOLD = Descriptions(
    abnormal={category: tuple(f"Bad {category} {i}." for i in range(50)) for category in Category},
    normal={category: tuple(f"Good {category} {i}." for i in range(5)) for category in Category},
)
OWN = "The heart is enlarged. Small left pleural effusion."


def many(count: int, shares: Shares | None = None, seed: int = 0) -> list[Enriched]:
    return enrich([OWN] * count, TOLD, shares, seed=seed, keys=[f"k{i}" for i in range(count)])


def test_each_source_speaks_as_often_as_its_share_says_in_every_category():
    """2,000 descriptions, 400 a category; four standard deviations of a binomial either way."""
    reports = many(400)
    for categories, n in ((list(Category), 2000), *(([category], 400) for category in Category)):
        drawn = [part.source for report in reports for part in report.parts if part.category in categories]
        assert len(drawn) == n
        for source, share in (("abnormal", 0.8), ("normal", 0.1), ("own", 0.1)):
            assert abs(drawn.count(source) / n - share) < 4 * math.sqrt(share * (1 - share) / n), (source, n)


def test_sources_are_drawn_for_each_description_not_for_each_report():
    """All five alike: 0.8^5 + 2 · 0.1^5 = 0.328 of the reports; one draw a report would make it 1."""
    alike = sum(len({part.source for part in report.parts}) == 1 for report in many(400)) / 400
    assert abs(alike - 0.328) < 4 * math.sqrt(0.328 * 0.672 / 400)


def test_descriptions_are_drawn_anew_too():
    texts = {part.text for report in many(400) for part in report.parts if part.source == "abnormal"}
    assert len(texts) == 250  # all fifty of each category


def test_own_parts_are_the_surrogates_sentences_and_nothing_where_it_wrote_none():
    [report] = many(1, Shares(0, 0, 1))
    assert [part.text for part in report.parts] == [
        "",
        "Small left pleural effusion.",
        "The heart is enlarged.",
        "",
        "",
    ]
    assert report.text == "Small left pleural effusion. The heart is enlarged."
    assert enrichment_summary([report])["empty"] == 3


def test_a_report_depends_on_its_key_and_seed_and_not_on_its_neighbours():
    alone = enrich([OWN], TOLD, seed=0, keys=["k7"])[0]
    assert alone == many(20)[7] != many(20, seed=1)[7]
    assert len({report.text for report in many(20)}) > 15


def test_without_an_oracle_the_reports_stay_as_they_are():
    [report] = keep_own_reports([OWN])
    assert report.text == OWN and {part.source for part in report.parts} == {"own"}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Small left pleural effusion. The heart is enlarged.", 0),
        ("Small left pleural effusion. No pleural effusion.", 1),
        ("Severe emphysema. Low lung volumes.", 1),
    ],
)
def test_contradictions_are_counted(text, count):
    assert contradictions(Enriched(text, ())) == count


def test_the_summary_adds_up():
    found = enrichment_summary(many(50))
    assert found["n"] == 50 and found["drawn"] == sum(found["sources"].values()) == 250


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.2), (1.1, -0.1, 0.0), (float("nan"), 0.5, 0.5)])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ConfigError, match="sum to 1"):
        Shares(*shares)


@pytest.mark.parametrize("keys", [["a"], ["a", "a"]])
def test_every_report_needs_a_key_of_its_own(keys):
    with pytest.raises(DataError, match="2 reports came with 1 different keys"):
        enrich([OWN, OWN], TOLD, seed=0, keys=keys)
