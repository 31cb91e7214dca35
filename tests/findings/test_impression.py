import re

import pytest

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Presence, Severity, Side
from cxrlab.findings.lexicon import load_lexicon
from cxrlab.findings.narrator import ALWAYS, always, grouped, impression, nothing_acute, weight
from cxrlab.findings.realiser import Realiser

PNEUMOTHORAX = Finding("pneumothorax", side=Side.LEFT, location="apex", severity=Severity.MILD)
SCOLIOSIS = Finding("scoliosis", severity=Severity.MILD)
AORTA = Finding("tortuous aorta", severity=Severity.MILD)
LOW = Finding("low lung volumes", severity=Severity.MILD)
NO_ACUTE = re.compile(r"no acute|no active|normal|unremarkable|negative", re.I)


def text(visit, seed, lexicon="A"):
    return impression(visit, Realiser(load_lexicon(lexicon), generator(seed)))


def test_the_most_important_finding_comes_first(image):
    """A pneumothorax matters more than three chronic things listed before it."""
    for seed in range(40):
        first = re.split(r"(?<=\.)\s", text(image(SCOLIOSIS, AORTA, LOW, PNEUMOTHORAX), seed))
        assert "pneumothora" in " ".join(first[:2])


def test_nothing_acute_is_stated_beside_chronic_things_only(image):
    chronic = [text(image(SCOLIOSIS, AORTA), seed) for seed in range(60)]
    assert any(NO_ACUTE.search(row) for row in chronic)
    acute = [text(image(SCOLIOSIS, PNEUMOTHORAX), seed) for seed in range(60)]
    assert not any(NO_ACUTE.search(row) for row in acute)


def test_a_normal_image_has_a_normal_impression(image):
    allowed = load_lexicon("A").impression_normal
    assert all(text(image(), seed).lower().rstrip(".") in allowed for seed in range(30))


def test_a_resolved_finding_may_be_reported_but_the_image_is_normal(image):
    gone = Finding("edema", Presence.ABSENT, change=Change.RESOLVED)
    rows = [text(image(gone, days=4), seed) for seed in range(60)]
    assert any("edema" in row for row in rows) and any("edema" not in row for row in rows)


@pytest.mark.parametrize("change", [Change.NEW, Change.INCREASED])
def test_a_new_or_worse_chronic_thing_is_not_calm(change):
    assert not nothing_acute([Finding("hiatal hernia", severity=Severity.MILD, change=change)])
    assert nothing_acute([Finding("hiatal hernia", severity=Severity.MILD, change=Change.UNCHANGED)])


def test_a_tube_in_the_wrong_place_outweighs_one_in_the_right_place():
    wrong = Finding("endotracheal tube", tip="right main bronchus")
    assert (
        weight(wrong) > weight(PNEUMOTHORAX) - 1 > weight(Finding("endotracheal tube", tip="above carina", tip_mm=40.0))
    )


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_nothing_that_matters_is_left_out(image, examples, lexicon):
    """Nine findings, eight of which must be stated: each has its own word in every impression."""
    words = {
        "A": ("pneumothora", "mass", "nodul", "cavit", "consolidat", "pneumon|infectious", "edema", "effusion"),
        "B": ("air|pneumothora", "tumo|space-occ", "coin|nodular|rounded", "cavern|hollow|ring|excavat",
              "alveolar|airspace|consolidated", "infecti|pneumonic|infiltr", "oedema|overload", "fluid|hydrothora"),
    }  # fmt: skip
    names = ("pneumothorax", "mass", "nodule", "cavity", "consolidation", "pneumonia", "edema")
    present = [examples[name][0] for name in names]
    present.append(Finding("pleural effusion", side=Side.LEFT, severity=Severity.MODERATE))
    for seed in range(30):
        stated = text(image(SCOLIOSIS, *present), seed, lexicon)
        assert all(re.search(word, stated, re.I) for word in words[lexicon]), stated


def test_importance_begins_at_a_grade():
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    assert not always(effusion) and always(Finding("pleural effusion", side=Side.LEFT, severity=Severity.MODERATE))
    assert not always(SCOLIOSIS) and always(PNEUMOTHORAX) and "pneumoperitoneum" in ALWAYS


@pytest.mark.parametrize("tip", ["high", "right main bronchus"])
def test_a_misplaced_tube_is_always_reported(image, tip):
    tube = Finding("endotracheal tube", tip=tip, tip_mm=80.0 if tip == "high" else None)
    others = [Finding("atelectasis", side=s, location="lower zone", severity=Severity.SEVERE) for s in Side]
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.SEVERE)
    for seed in range(40):
        stated = text(image(*others, effusion, PNEUMOTHORAX, tube), seed)
        assert re.search("(?i)endotracheal|ET tube", stated) and re.search("high|bronchus", stated), stated


def rib(number, side=Side.LEFT, **fields):
    return Finding("rib fracture", side=side, location=f"rib {number}", **fields)


@pytest.mark.parametrize(("lexicon", "ribs"), [("A", "fourth, fifth, and seventh"), ("B", "4th, 5th, and 7th")])
def test_broken_ribs_of_one_side_share_a_line(image, lexicon, ribs):
    for seed in range(30):
        stated = text(image(rib(7), rib(4), rib(5)), seed, lexicon)
        assert f"left {ribs} rib" in stated.lower(), stated
        assert len(re.findall(r"\bribs?\b", stated)) == 1


def test_only_what_is_alike_is_grouped():
    """Another side, another change or a doubt has its own line."""
    findings = (
        rib(4), rib(5), rib(4, Side.RIGHT), rib(8, change=Change.NEW), rib(9, certainty=Certainty.POSSIBLE), SCOLIOSIS,
    )  # fmt: skip
    assert [len(line) for line in grouped(findings)] == [2, 1, 1, 1, 1]


def test_devices_and_side_findings_are_not_announced_as_disease(image):
    """'Study positive for a chest tube' is no diagnosis, a scoliosis nothing to be emphasised."""
    tube = Finding("chest tube", side=Side.LEFT, tip="apex")
    disease = re.compile("positive for|findings of|presence of|picture of|demonstration of|emphasised", re.I)
    for lexicon in ("A", "B"):
        for finding in (tube, SCOLIOSIS, LOW, Finding("sternal wires")):
            assert not any(disease.search(text(image(finding), seed, lexicon)) for seed in range(60))
        assert any(disease.search(text(image(PNEUMOTHORAX), seed, lexicon)) for seed in range(60))
