import pytest
from tables import every_row

from cxrlab.findings.lexicon import (
    capital,
    centimetres,
    compiled,
    fill,
    interval,
    listed,
    millimetres,
    slots,
    without_article,
)


@pytest.mark.parametrize(
    ("template", "both", "text", "plural"),
    [
        ("[a |]small effusion[|s]", False, "a small effusion", False),
        ("[a |]small effusion[|s]", True, "small effusions", True),
        ("air under <the dome|both domes>", True, "air under both domes", False),
        ("+ sternal wires", False, "sternal wires", True),
        ("there [is|are] fluid", True, "there are fluid", True),
    ],
)
def test_forks(template, both, text, plural):
    """Square forks make a plural, angular ones do not."""
    parts, number = compiled(template, both)
    assert ("".join(parts), number) == (text, plural)


@every_row(
    ("word", "text"),
    [
        ("extensive", "an extensive"), ("small", "a small"), ("8 mm", "an 8 mm"), ("11 mm", "an 11 mm"),
        ("18 mm", "an 18 mm"), ("1.1 cm", "a 1.1 cm"), ("1.8 cm", "a 1.8 cm"), ("28 mm", "a 28 mm"),
        ("12 mm", "a 12 mm"), ("80 mm", "an 80 mm"),
    ],
)  # fmt: skip
def test_the_article_follows_the_sound(word, text):
    """Eight, eleven and eighteen begin with a vowel; one point one does not."""
    assert fill(compiled("a {x}", False)[0], lambda name: word) == text


def test_slots_and_articles():
    assert slots("{sev} fluid {on}") == {"sev", "on"}
    assert without_article("an old scar") == "old scar"
    assert without_article("atelectasis") == "atelectasis"
    assert capital("the heart") == "The heart"


@pytest.mark.parametrize(("items", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b, or c")])
def test_lists(items, text):
    assert listed(items, "or") == text


@pytest.mark.parametrize(
    ("days", "text"),
    [(1, "1 day"), (13, "13 days"), (14, "2 weeks"), (60, "2 months"), (365, "12 months"), (730, "2 years")],
)
def test_intervals_are_rounded_to_the_nearest_unit(days, text):
    assert interval(days) == text


def test_measures_are_exact():
    assert (millimetres(14.0), centimetres(14.0), centimetres(30.0)) == ("14 mm", "1.4 cm", "3 cm")
