import pytest

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, Presence, Severity, Side
from cxrlab.findings.denials import Denier
from cxrlab.findings.lexicon import load_lexicon
from cxrlab.findings.negatives import NORMAL
from cxrlab.findings.words import Words

REGIONS = sorted({row.region for row in NORMAL.values()})
EFFUSION = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)


def denier(visit, seed=0, lexicon="A"):
    return Denier(visit, Words(load_lexicon(lexicon), generator(seed)))


def test_no_negative_is_said_twice(film):
    """Twenty lists drain the observations; each name comes up once at most."""
    for seed in range(20):
        source = denier(film(), seed)
        names = [key for _ in range(20) for row in source.denial(REGIONS, most=4) for _, _, key in row.marks]
        assert len(names) == len(set(names)) > 5
        assert not [row for region in REGIONS for row in source.normal(region) if set(_keys(row)) & set(names)]


def _keys(statement):
    return [key for _, _, key in statement.marks]


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_each_item_of_a_list_has_its_own_words(film, lexicon):
    """The marked words of a list do not overlap, and the joining word is outside them."""
    for seed in range(60):
        for row in denier(film(), seed, lexicon).denial(REGIONS, most=4):
            ends = [0, *(end for _, end, _ in row.marks)]
            assert all(start >= before for (start, _, _), before in zip(row.marks, ends, strict=False))
            for start, end, name in row.marks:
                assert row.text[start:end] in load_lexicon(lexicon).observations[name].absent


def test_a_present_or_resolved_thing_is_not_denied(film):
    gone = Finding("pneumothorax", Presence.ABSENT, side=Side.LEFT, location="apex", change=Change.RESOLVED)
    for seed in range(60):
        source = denier(film(EFFUSION, gone, days=3), seed)
        rows = [*source.normal("pleura"), *source.denial(REGIONS, most=4)]
        assert not {"pleural effusion", "pneumothorax"} & {key for row in rows for key in _keys(row)}


def test_a_region_with_a_finding_is_not_called_normal(film):
    assert denier(film(EFFUSION)).normal("lungs") == []
    assert denier(film(EFFUSION)).normal("heart") != []


def test_a_lone_negative_never_follows_neither(film):
    """'Neither effusion.' is not English; with several items the frame does occur."""
    lone = [row.text for seed in range(150) for row in denier(film(), seed, "B").denial(REGIONS, most=1)]
    several = [row.text for seed in range(150) for row in denier(film(), seed, "B").denial(REGIONS, most=4)]
    assert not any(text.startswith("neither") for text in lone)
    assert any(text.startswith("neither") for text in several)


def test_a_short_normal_report_gets_a_verdict(film):
    source = denier(film())
    whole = source.whole([], headed=False)
    assert [row.text for row in whole][0] in load_lexicon("A").normal["whole"]
