"""Does the text say what is on the film? The word lists here are written for the tests alone."""

import re
import time
from dataclasses import replace

import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.core.vocabulary import Certainty, Change, Presence, Side, View
from cxrlab.findings.lexicon import load_lexicon, templates
from cxrlab.findings.narrator import STYLES, narrate
from cxrlab.findings.realiser import Realiser
from cxrlab.findings.simulated_patients import draw_patient

BOTH_LEXICONS = pytest.mark.parametrize("lexicon", ["A", "B"])
TERMS = {
    "lung opacity": "opaci|shadow|densit|haze", "consolidation": "consolidat|alveolar filling|airspace (fill|solid)",
    "pneumonia": "pneumoni|infect|infiltrat", "atelectasis": "atelecta|collapse|aeration", "edema": "o?edema|overload",
    "nodule": "nodul|coin lesion|rounded focus", "mass": "mass|tumo|space-occupying",
    "cavity": "cavi|cavern|hollow|ring shadow|excavat", "granuloma": "granulom|residue", "emphysema": "emphysem",
    "interstitial pattern": "interstiti|reticul|septal|fibrosing|coarsening",
    "low lung volumes": "volume|inflat|expansion|inspiration|hypoventilation",
    "pleural effusion": "effusion|fluid|hydrothora",
    "pneumothorax": "pneumothora|air cap|air in|pleural air",
    "pleural thickening": "thick|rind|peel|fibro", "pleural plaque": "plaque|calcific|deposit",
    "cardiomegaly": "cardi|heart", "enlarged cardiomediastinum": "mediast", "hilar enlargement": "hil[aiu]|lung root",
    "tortuous aorta": "tortuo|elongat|unfold|winding", "aortic calcification": "calci|sclero|chalk",
    "hiatal hernia": "hernia|intrathoracic", "elevated hemidiaphragm": "diaphragm|dome",
    "pneumoperitoneum": "free (air|intra|gas|abdom)|pneumoperitoneum|subphrenic|gas sickle|extraluminal",
    "rib fracture": "rib", "clavicle fracture": "clavic|collarbone",
    "scoliosis": "scolio|curv|bow", "subcutaneous emphysema": "subcutaneous|surgical|soft tissue|skin",
    "endotracheal tube": "endotracheal tube|ET tube|tracheal tube|breathing|intubation|airway",
    "enteric tube": "(enteric|nasogastric|NG|gastric|feeding|stomach) tube",
    "central venous catheter": "central (venous|vein|line|access)|central line|CVC",
    "chest tube": "(chest|thoracostomy) tube|drain",
    "pacemaker": "pac(emaker|ing)|generator", "sternal wires": "stern",
}  # fmt: skip
# Realiser by which a statement on a whole region denies several things at once.
REGION_TERMS = (
    "costophrenic|recess|pleura|abdom|diaphragm|bon[ey]|osseous|skelet|thorac|lines|tube|device|catheter|implant|"
    "foreign|inserted|ribs|lung|shadow|parenchym|transparen|domes?"
)
GRADES = {
    "mild": r"mild(ly)?|slight(ly)?|(fairly )?small|minor|low-grade|limited|thin|narrow|somewhat|marginally",
    "moderate": r"moderate(ly|-sized|-volume)?|intermediate|mid-(sized|grade|width)|medium(-sized|-grade)?|"
    r"middle-sized|appreciably|noticeably",
    "severe": r"severe(ly)?|marked(ly)?|(very )?large|extensive|massive|substantial|pronounced|high-grade|gross(ly)?|"
    r"considerably|(very )?wide",
}
SIDES = {Side.LEFT: r"left", Side.RIGHT: r"right", Side.BILATERAL: r"both|bilateral(ly)?"}
ZONES = {"upper zone": "upper", "mid zone": "mid|middle", "lower zone": "lower", "base": "bas", "chest wall": "wall"}
HEDGE = re.compile(
    r"\b(may|possibl[ey]|cannot be excluded|suspicion|suspected|questionabl[ey]|could|might|perhaps|conceivabl[ey]|"
    r"query|equivocal|question)\b",
    re.I,
)
CHANGED = {
    Change.NEW: "new|inserted|placed|first visible|appeared|fresh|recent onset|arisen|put in|introduced|fitted|sited",
    Change.INCREASED: "increas|worse|progress|greater|larger|grown|growth|bigger|enlarged|advanc|deterior|up from"
    "|more than|wider|expanded|poorer|weaker",
    Change.UNCHANGED: "unchanged|stable|without interval change|similar|same|as before|no different|constant|static"
    "|as on|lying as|as last time|not moved|held",
    Change.DECREASED: "decreas|improv|less|better|smaller|reduced|reced|down from|decline|regress|shrunk|shrink"
    "|narrower|contracted|fuller|recover",
    Change.RESOLVED: "resol|clear|no longer|gone|remov|heal|disappear|vanish|regression|taken|withdraw|united|union"
    "|knitted",
}
# What must not be said when one of these is on the film, possibly or certainly.
LUNG = {
    "lung opacity", "consolidation", "pneumonia", "atelectasis", "edema", "nodule", "mass", "cavity", "granuloma",
    "emphysema", "interstitial pattern", "low lung volumes",
}  # fmt: skip
TUBES = {"pacemaker", "chest tube", "endotracheal tube", "enteric tube", "central venous catheter"}
FORBIDDEN = [
    (
        {"cardiomegaly"},
        r"heart is (normal|not\b)|heart size is normal|normal (heart|cardiac)|cardiac (silhouette|size) is normal"
        r"|cardiac size is within|ordinary (cardiac )?dimensions|heart shadow is not|shadow is of ordinary"
        r"|below one half|slender heart",
    ),
    (
        {"rib fracture", "clavicle fracture"},
        r"intact (bon|oss)|(bones|structures) are intact|bones are unrem|no acute oss|unbroken|no break|without breaks"
        r"|spine in good|no [^.]*\bfracture",
    ),
    ({"lung opacity", "consolidation", "pneumonia"}, r"no [^.]*\b(focal )?consolidation|no [^.]*\bpneumonia"),
    (
        LUNG,
        r"lungs are (well|clear)|clear lungs|lung fields are clear|free of shadows|even transparency|evenly aerated"
        r"|good aeration|parenchyma without shadowing",
    ),
    (
        {"pleural effusion"},
        r"angles are (sharp|clear|not)|(sharp|clear) costo|recesses|pleural spaces are (clear|normal)|normal pleural"
        r"|pleura is normal|cavit(y|ies) (is|are) empty|no [^.]*\beffusion",
    ),
    ({"pneumothorax"}, r"pleural spaces are (clear|normal)|pleura is normal|empty|no [^.]*\bpneumothorax"),
    (TUBES, r"no (lines|tubes|support|indwelling|medical)|neither (catheters|tube)|free of (cath|foreign)"),
]


def bare(item):
    return item.removeprefix("+ ")


def has(pattern, text):
    return re.search(rf"\b({pattern})\b", text, re.I) is not None


@pytest.fixture(scope="module")
def reported(visits):
    """600 narrated visits of each lexicon."""
    sample = visits[:600]
    return {name: [(v, narrate(v, 5, f"s{i}", name)) for i, v in enumerate(sample)] for name in ("A", "B")}


def statements(pairs):
    for visit, narration in pairs:
        for original, finding in zip(visit.findings, narration.findings, strict=False):
            assert replace(finding, span=None) == original
            start, end = finding.span
            yield finding, narration.report.findings[start:end]


@BOTH_LEXICONS
def test_everything_present_is_stated_with_all_that_belongs_to_it(reported, lexicon):
    """The words of each finding hold a term of its own, its side, degree, place, size, tip and change."""
    for finding, text in statements(reported[lexicon]):
        assert re.search(TERMS[finding.observation], text, re.I), (finding, text)
        if finding.side:
            assert has(SIDES[finding.side], text), (finding, text)
        if finding.location in ZONES:
            assert re.search(ZONES[finding.location], text, re.I), (finding, text)
        if finding.severity:
            assert [g for g, words in GRADES.items() if has(words, text)] == [finding.severity], (finding, text)
        for value in (finding.size_mm, finding.tip_mm):
            assert value is None or has(f"{value:g} mm|{value / 10:g} cm", text), (finding, text)
        if finding.change:
            assert re.search(CHANGED[finding.change], text, re.I), (finding, text)


@BOTH_LEXICONS
def test_the_possible_is_hedged_and_the_certain_is_not(reported, lexicon):
    for finding, text in statements(reported[lexicon]):
        assert bool(HEDGE.search(text)) == (finding.certainty is Certainty.POSSIBLE), text


@BOTH_LEXICONS
def test_a_one_sided_finding_never_names_the_other_side(reported, lexicon):
    """Left and right are the patient's; vessels and heart chambers carry a right of their own."""
    named = re.compile(r"right (atrium|ventricle|main|mainstem|stem)|ventricle", re.I)
    other = {Side.LEFT: "right|both|bilateral", Side.RIGHT: "left|both|bilateral"}
    for finding, text in statements(reported[lexicon]):
        if finding.side in other:
            assert not has(other[finding.side], named.sub("", text)), text


@BOTH_LEXICONS
def test_negatives_are_true_and_stand_where_their_span_says(reported, lexicon):
    for visit, narration in reported[lexicon]:
        present = {f.observation for f in visit.present}
        negatives = narration.findings[len(visit.findings) :]
        assert len({f.observation for f in negatives}) == len(negatives)
        for finding in negatives:
            assert finding.presence is Presence.ABSENT and finding.observation not in present
            assert 0 <= finding.span[0] < finding.span[1] <= len(narration.report.findings)
            text = narration.report.findings[slice(*finding.span)]
            listed = text in map(bare, load_lexicon(lexicon).observations[finding.observation].absent)
            pattern = TERMS[finding.observation] + ("" if listed else "|" + REGION_TERMS)
            assert re.search(pattern, text, re.I), (finding, text)


@BOTH_LEXICONS
def test_no_section_contradicts_the_image(reported, lexicon):
    for visit, narration in reported[lexicon]:
        present = {f.observation for f in visit.present}
        for names, pattern in FORBIDDEN:
            if present & names:
                for text in (narration.report.findings, narration.report.impression):
                    assert not re.search(pattern, text, re.I), (present & names, text)


@BOTH_LEXICONS
def test_a_first_image_is_compared_with_nothing(reported, lexicon):
    pattern = re.compile(
        r"\b(prior|previous(ly)?|interval|unchanged|stable|earlier (image|exam)|last time|as before)\b", re.I
    )
    for visit, narration in reported[lexicon]:
        if visit.days_since_prior is None:
            report = narration.report
            assert not pattern.search(f"{report.indication} {report.findings} {report.impression}"), report


@BOTH_LEXICONS
def test_the_text_is_clean(reported, lexicon):
    """One space, capitals, full stops, right articles, nothing left of the template language."""
    for _, narration in reported[lexicon]:
        report = narration.report
        for text in (report.indication, report.comparison, report.findings, report.impression):
            assert not re.search(r"  |[{}\[\]<>|]| ,|\.\.| \.|,,", text), text
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou8EN1]|\b(a|the) (a|the)\b", text), text
            assert text.endswith(".") and text == text.strip()
            for sentence in re.split(r"(?<=[a-z]\.)\s", text):
                assert re.match(r"(\d+\. )?[A-Z0-9]", sentence), sentence


def test_same_name_same_words_and_another_name_other_words(visits):
    """The truth stays: only spans and negatives may differ."""
    differ = 0
    for visit in visits[:150]:
        first, again, other = (narrate(visit, 5, name) for name in ("s1", "s1", "s2"))
        assert first == again
        differ += first.report.findings != other.report.findings
        count = len(visit.findings)
        assert [replace(f, span=None) for f in other.findings[:count]] == list(visit.findings)
    assert differ >= 149


def test_reports_hardly_ever_repeat(reported):
    """Normal films are where wording is most likely to run out."""
    for pairs in reported.values():
        normal = [n.report.findings for v, n in pairs if not v.findings]
        assert len(normal) > 80 and len(set(normal)) > 0.95 * len(normal)
        assert len({n.report.findings for _, n in pairs}) > 0.98 * len(pairs)


def _grams(pairs, size=4):
    for _, narration in pairs:
        for text in narration.report.to_json().values():
            words = re.findall(r"[a-z0-9.-]*[a-z0-9]", text.lower())
            yield from (tuple(words[i : i + size]) for i in range(len(words) - size + 1))


def test_the_lexicons_share_few_four_word_sequences(reported):
    """Below 2 % of running text (measured near 1 %): a model cannot get by in B on the sentences of A."""
    a, b = list(_grams(reported["A"])), list(_grams(reported["B"]))
    common = set(a) & set(b)
    assert sum(gram in common for gram in b) / len(b) < 0.02
    assert sum(gram in common for gram in a) / len(a) < 0.02


def test_no_sentence_is_written_by_both_lexicons(reported):
    def sentences(pairs):
        texts = (text for _, n in pairs for text in n.report.to_json().values())
        return {s.lower() for text in texts for s in re.split(r"(?<=[a-z]\.)\s+|\d+\. |: ", text) if s}

    assert sentences(reported["A"]) & sentences(reported["B"]) == set()


@BOTH_LEXICONS
def test_every_entry_of_the_lexicon_can_be_spoken(examples, image, monkeypatch, lexicon):
    """An entry that no report can reach is dead text; all of them turn up in some 9,000 reports."""
    spoken = set()
    choose = Realiser.pick

    def noted(self, options):
        option = choose(self, options)
        spoken.update([option] if isinstance(option, str) else option)
        return option

    monkeypatch.setattr(Realiser, "pick", noted)
    number = 0
    for rows in examples.values():
        for change in (None, *Change):
            for repeat in range(44):
                finding = _changed(rows[repeat % len(rows)], change, possible=repeat % 3 == 0)
                visit = image(finding, days=None if change is None else 9, view=[View.PA, View.AP][repeat % 2])
                context = list(load_lexicon(lexicon).indications)[number % 9]
                narrate(replace(visit, context=context), 5, f"n{number}", lexicon)
                number += 1
    for repeat in range(300):
        narrate(image(view=View.AP), 5, f"normal{repeat}", lexicon)
        narrate(image(*examples["rib fracture"][:14]), 5, f"ribs{repeat}", lexicon)
    missing = set(templates(load_lexicon(lexicon))) - spoken - set(load_lexicon(lexicon).zones.values())
    assert not missing


def _changed(finding, change, possible):
    if change is Change.RESOLVED:
        return replace(
            finding, presence=Presence.ABSENT, change=change, severity=None, size_mm=None, tip=None, tip_mm=None
        )
    device = finding.observation in ("sternal wires", "pacemaker") or finding.tip is not None
    certainty = Certainty.POSSIBLE if possible and not device else Certainty.CERTAIN
    if change in (Change.INCREASED, Change.DECREASED) and device:
        change = Change.UNCHANGED
    return replace(finding, change=change, certainty=certainty)


def test_an_unknown_lexicon_is_refused(image):
    with pytest.raises(UnknownName, match="'Z' is not a lexicon"):
        narrate(image(), 1, "s", "Z")


def test_styles_look_different(visits):
    """Numbers and headings appear in their styles and in no other."""
    texts = [narrate(v, 5, f"s{i}").report.findings for i, v in enumerate(visits[:300])]
    numbered = sum(text.startswith("1. ") for text in texts)
    headed = sum(bool(re.match(r"[A-Z][a-z ]+: ", text)) for text in texts)
    assert len(STYLES) >= 4 and numbered > 30 and headed > 30 and numbered + headed < 250


def test_a_report_takes_less_than_a_millisecond():
    """Measured near 0.4 ms; the bound is on processor time, so that a busy machine does not matter."""
    visits = [v for i in range(120) for v in draw_patient(8, f"p{i}").visits]
    narrate(visits[0], 8, "warm")
    start = time.process_time()
    for i, visit in enumerate(visits):
        narrate(visit, 8, f"s{i}")
    assert (time.process_time() - start) / len(visits) < 1e-3
