import re

import pytest

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, Presence, Severity, Side
from cxrlab.findings.impression import calm, impression, weight
from cxrlab.findings.lexicon import load_lexicon
from cxrlab.findings.words import Words

PNEUMOTHORAX = Finding("pneumothorax", side=Side.LEFT, location="apex", severity=Severity.MILD)
SCOLIOSIS = Finding("scoliosis", severity=Severity.MILD)
AORTA = Finding("tortuous aorta", severity=Severity.MILD)
LOW = Finding("low lung volumes", severity=Severity.MILD)
NO_ACUTE = re.compile(r"no acute|no active|normal|unremarkable|negative", re.I)


def text(visit, seed, lexicon="A"):
    return impression(visit, Words(load_lexicon(lexicon), generator(seed)))


def test_the_most_important_finding_comes_first(film):
    """A pneumothorax matters more than three chronic things listed before it."""
    for seed in range(40):
        first = re.split(r"(?<=\.)\s", text(film(SCOLIOSIS, AORTA, LOW, PNEUMOTHORAX), seed))
        assert "pneumothora" in " ".join(first[:2])


def test_nothing_acute_is_said_beside_chronic_things_only(film):
    chronic = [text(film(SCOLIOSIS, AORTA), seed) for seed in range(60)]
    assert any(NO_ACUTE.search(row) for row in chronic)
    acute = [text(film(SCOLIOSIS, PNEUMOTHORAX), seed) for seed in range(60)]
    assert not any(NO_ACUTE.search(row) for row in acute)


def test_a_normal_film_has_a_normal_impression(film):
    allowed = load_lexicon("A").impression_normal
    assert all(text(film(), seed).lower().rstrip(".") in allowed for seed in range(30))


def test_a_resolved_finding_may_be_told_but_the_film_is_normal(film):
    gone = Finding("edema", Presence.ABSENT, change=Change.RESOLVED)
    rows = [text(film(gone, days=4), seed) for seed in range(60)]
    assert any("edema" in row for row in rows) and any("edema" not in row for row in rows)


@pytest.mark.parametrize("change", [Change.NEW, Change.INCREASED])
def test_a_new_or_worse_chronic_thing_is_not_calm(change):
    assert not calm([Finding("hiatal hernia", severity=Severity.MILD, change=change)])
    assert calm([Finding("hiatal hernia", severity=Severity.MILD, change=Change.UNCHANGED)])


def test_a_tube_in_the_wrong_place_outweighs_one_in_the_right_place():
    wrong = Finding("endotracheal tube", tip="right main bronchus")
    assert (
        weight(wrong) > weight(PNEUMOTHORAX) - 1 > weight(Finding("endotracheal tube", tip="above carina", tip_mm=40.0))
    )
