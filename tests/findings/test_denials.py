import re

import pytest

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, Presence, Severity, Side
from cxrlab.findings.lexicon import load_lexicon, without_article
from cxrlab.findings.negative_statements import NORMAL, NegativeStatements
from cxrlab.findings.realiser import Realiser

REGIONS = sorted({row.region for row in NORMAL.values()})
EFFUSION = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)


def denier(visit, seed=0, lexicon="A"):
    return NegativeStatements(visit, Realiser(load_lexicon(lexicon), generator(seed)))


def test_no_negative_is_stated_twice(image):
    """Twenty lists drain the observations; each name comes up once at most."""
    for seed in range(20):
        source = denier(image(), seed)
        names = [key for _ in range(20) for row in source.denial(REGIONS, most=4) for _, _, key in row.marks]
        assert len(names) == len(set(names)) > 5
        assert not [row for region in REGIONS for row in source.normal(region) if set(_keys(row)) & set(names)]


def _keys(statement):
    return [key for _, _, key in statement.marks]


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_each_item_of_a_list_has_its_own_words(image, lexicon):
    """The marked words of a list do not overlap, and the joining word is outside them."""
    for seed in range(60):
        for row in denier(image(), seed, lexicon).denial(REGIONS, most=4):
            ends = [0, *(end for _, end, _ in row.marks)]
            assert all(start >= before for (start, _, _), before in zip(row.marks, ends, strict=False))
            for start, end, name in row.marks:
                names = [item.removeprefix("+ ") for item in load_lexicon(lexicon).observations[name].absent]
                assert row.text[start:end] in {*names, *map(without_article, names)}


def test_a_present_or_resolved_thing_is_not_denied(image):
    gone = Finding("pneumothorax", Presence.ABSENT, side=Side.LEFT, location="apex", change=Change.RESOLVED)
    for seed in range(60):
        source = denier(image(EFFUSION, gone, days=3), seed)
        rows = [*source.normal("pleura"), *source.denial(REGIONS, most=4)]
        assert not {"pleural effusion", "pneumothorax"} & {key for row in rows for key in _keys(row)}


def test_a_region_with_a_finding_is_not_called_normal(image):
    assert denier(image(EFFUSION)).normal("lungs") == []
    assert denier(image(EFFUSION)).normal("heart") != []


def test_a_lone_negative_never_follows_neither(image):
    """'Neither effusion.' is not English; with several items the frame does occur."""
    lone = [row.text for seed in range(150) for row in denier(image(), seed, "B").denial(REGIONS, most=1)]
    several = [row.text for seed in range(150) for row in denier(image(), seed, "B").denial(REGIONS, most=4)]
    assert not any(text.startswith("neither") for text in lone)
    assert any(text.startswith("neither") for text in several)


def wires(visit, seed, lexicon, first):
    """A list of two negatives, the plural sternal wires first or last."""
    names = ["sternal wires", "pneumothorax"] if first else ["pneumothorax", "sternal wires"]
    return denier(visit, seed, lexicon)._list(names).text


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_the_verb_agrees_with_the_item_beside_it(image, lexicon):
    """'No sternal wires is seen' and 'there is no sternal wires' are not English; nor is 'a and b is'."""
    verbs = set()
    for seed in range(200):
        for first in (True, False):
            text = wires(image(), seed, lexicon, first)
            before = re.match(r"there (is|are) no (?!evidence)", text)
            after = re.search(r" (is|are) (seen|not demonstrated)$", text)
            if before:
                assert before[1] == ("are" if first else "is"), text
            if after:
                assert after[1] == ("is" if first and lexicon == "A" else "are"), text
            verbs.update(match[1] for match in (before, after) if match)
        lone = denier(image(), seed, lexicon)._list(["sternal wires"]).text
        assert not re.search(r"there is no (?!evidence)| is (seen|not)", lone), lone
    assert "are" in verbs


def test_what_can_be_counted_has_its_article_in_a_sentence(image):
    """'Absence of broken rib' and 'nothing indicates coin lesion' lack one; 'not found' is a note."""
    for seed in range(200):
        text = denier(image(), seed, "B")._list(["rib fracture", "nodule", "pneumothorax"]).text
        bare = re.search(r"(?<!\ba )\b(broken rib|rib break|coin lesion|rounded focus|nodular lesion)", text)
        assert bool(bare) == text.endswith("not found"), text


def test_a_short_normal_report_gets_a_verdict(image):
    source = denier(image())
    whole = source.whole([], headed=False)
    assert [row.text for row in whole][0] in load_lexicon("A").normal["whole"]
