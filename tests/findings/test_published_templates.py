"""The template sentences of LLaVA-Rad's supplementary table 5, read from the paper's text, not kept here."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest
from label_values import read_value
from tables import every_row

from cxrlab.core.label_maps import LABEL_MAPS
from cxrlab.core.records import chexpert_labels
from cxrlab.findings.label_report import FRAMES, NOTHING_FOUND, STYLES
from cxrlab.findings.lexicon import capital
from cxrlab.findings.reader import read

_SEEDS = Path(os.environ.get("CXRLAB_SEEDS") or Path(__file__).parents[3] / "shared" / "seeds")
_VALUES = {"Positive": 1, "Negative": 0, "Uncertain": -1}
_OUTSIDE = ("Calcification", "Other lesion", "Tuberculosis", "Other diseases")
_SLOT = "<condition>"


@cache
def tables() -> dict[str, list[str]]:
    """Heading → sentences; empty where no document of the folder holds the table."""
    for path in sorted(_SEEDS.glob("*.txt")):
        text = path.read_text("utf-8", errors="replace")
        found = re.search(rf"^Positive {_SLOT}:$(?s:.)*?^Supplementary Table 5", text, re.MULTILINE)
        if found:
            groups: dict[str, list[str]] = {}
            for line in found.group().splitlines():
                heading, sentence = re.fullmatch(r"\s*(\D.*):\s*", line), re.fullmatch(r"\s*\d+\.\s+(.+?)\s*", line)
                if heading:
                    groups[heading[1]] = []
                elif sentence:
                    groups[[*groups][-1]].append(sentence[1])
            return groups
    return {}


pytestmark = pytest.mark.skipif(
    not tables(), reason="the text of LLaVA-Rad's paper is not there; CXRLAB_SEEDS names the folder that holds it"
)


def filled(template: str, condition: str) -> str:
    return (
        template.replace(_SLOT, condition).replace(capital(_SLOT), condition).replace("<Condition>", capital(condition))
    )


def conditions() -> list[tuple[str, str, str]]:
    """(corpus, label, spelling) of every label that the vocabulary can name."""
    found = []
    for corpus in ("chexpert", "candid-ptx", "vindr-cxr", "object-cxr"):
        for label in LABEL_MAPS[corpus]:
            if label != STYLES[corpus].nothing and label not in _OUTSIDE:
                found += [(corpus, label, spelling) for spelling in dict.fromkeys((label, label.lower()))]
    return found


def expected(heading: str, sentence: str) -> int:
    """The class of the table, but for one sentence: "suggestive of" hedges, as in the reader's conventions."""
    return -1 if "suggestive of" in sentence else _VALUES[heading.split()[0]]


def test_the_table_was_found_whole() -> None:
    """29 sentences under eight headings, as printed."""
    assert [len(sentences) for sentences in tables().values()] == [8, 7, 3, 2, 3, 2, 2, 2]


@every_row(("corpus", "label", "spelling"), conditions())
def test_a_condition_is_read_as_the_table_means_it(corpus: str, label: str, spelling: str) -> None:
    for heading, sentences in tables().items():
        for sentence in sentences if _SLOT in heading else ():
            value = read_value(read(filled(sentence, spelling)), corpus, label)
            assert value == expected(heading, sentence), filled(sentence, spelling)


@pytest.mark.parametrize("label", _OUTSIDE)
def test_what_the_vocabulary_lacks_is_heard_or_denied(label: str) -> None:
    """Said to be there or in doubt it is kept as unread; denied, as a normal statement."""
    for heading, sentences in tables().items():
        for sentence in sentences if _SLOT in heading else ():
            reading = read(filled(sentence, label.lower()))
            denied = _VALUES[heading.split()[0]] == 0
            assert (bool(reading.normal), bool(reading.unread)) == (denied, not denied), filled(sentence, label)
            assert not reading.findings


@pytest.mark.parametrize(
    ("heading", "labels"),
    [
        ("No findings", {"No Finding": 1}),
        ("No support devices", {"No Finding": 1, "Support Devices": 0}),
        ("Pleural others", {"Pleural Other": 1}),
        ("No pleural others", {"No Finding": 1, "Pleural Other": 0}),
        ("Uncertain pleural others", {"Pleural Other": -1}),
    ],
)
def test_a_whole_sentence_is_read_as_the_table_means_it(heading: str, labels: dict[str, int]) -> None:
    for sentence in tables()[heading]:
        reading = read(sentence)
        assert chexpert_labels(reading.findings, complete=False) == labels, sentence
        assert reading.has_statements and not reading.unread, sentence


def words(sentence: str) -> str:
    return " ".join(re.findall(r"[a-z<>]+", sentence.lower()))


def test_no_sentence_of_ours_is_one_of_theirs() -> None:
    theirs = {words(sentence) for sentences in tables().values() for sentence in sentences}
    framed = [re.sub(r"\{(list|bare)\}", _SLOT, frame) for frames in FRAMES.values() for frame in frames.templates]
    ours = [frame.replace("{is}", "is") for frame in framed] + [frame.replace("{is}", "are") for frame in framed]
    for row in STYLES.values():
        for wording in row.wordings.values():
            ours += [*wording.present, *wording.absent, *wording.possible, *wording.beside]
    assert not {words(sentence) for sentence in (*ours, *NOTHING_FOUND)} & theirs
