"""Labels into text and back: the reader finds in the text what the labels say."""

from __future__ import annotations

from collections import Counter

import pytest
from label_values import read_value

from cxrlab.core.errors import ConfigError, DataError, VocabularyError
from cxrlab.core.label_maps import LABEL_MAPS, map_label
from cxrlab.core.randomness import generator
from cxrlab.core.records import chexpert_labels
from cxrlab.core.vocabulary import observation
from cxrlab.findings.label_report import FRAMES, NOTHING_FOUND, STYLES, label_report, stated_labels
from cxrlab.findings.lexicon import capital, without_article
from cxrlab.findings.reader import Reading, read

# Shares of present, absent, uncertain and missing labels: few labels as in real tables, all of one kind, and all mixed.
MIXES = (
    (0.15, 0.15, 0.05, 0.65),
    (0.25, 0.25, 0.25, 0.25),
    (0.6, 0.1, 0.3, 0),
    (0.05, 0.9, 0.05, 0),
    (0.1, 0.9, 0, 0),
    (0, 1, 0, 0),
    (0, 0, 1, 0),
    (1, 0, 0, 0),
)


def drawn(style: str, seed: int) -> dict[str, int]:
    """Any vector of the style; it may contradict itself."""
    rng = generator(seed, "vector", style)
    names = [*STYLES[style].wordings]
    values = rng.choice([1, 0, -1, 9], size=len(names), p=MIXES[seed % len(MIXES)])
    return {name: int(value) for name, value in zip(names, values, strict=True) if value != 9}


def consistent(style: str, seed: int) -> dict[str, int]:
    """A vector without contradiction, as `label_report` defines it."""
    labels, row = drawn(style, seed), STYLES[style]
    for name in labels:  # labels of one observation agree
        for other in labels:
            if set(map_label(row.corpus, name).observations) & set(map_label(row.corpus, other).observations):
                labels[other] = labels[name]
    if row.nothing and seed % 3:
        found = any(value for name, value in labels.items() if name != "Support Devices")
        labels[row.nothing] = 0 if found else 1
    return labels


def unlike(labels: dict[str, int], reading: Reading, style: str) -> list[str]:
    """Labels that the reader does not give back."""
    row = STYLES[style]
    fourteen = chexpert_labels(reading.findings, complete=False)
    wrong = []
    for name, value in labels.items():
        if name == row.nothing:
            right = (value == 1) == (fourteen.get("No Finding") == 1 and not reading.unread)
        elif row.wordings[name].alone:
            right = True  # the vocabulary has no name for it; see the test of those labels
        elif name in fourteen or row.corpus in ("chexpert", "brax"):
            right = fourteen.get(name) == value
        else:
            right = read_value(reading, row.corpus, name) == value
        if not right:
            wrong.append(name)
    return wrong


def invented(labels: dict[str, int], reading: Reading, style: str) -> set[str]:
    """Observations of the text that no label speaks of."""
    rows = [map_label(STYLES[style].corpus, name) for name in labels]
    named = {name for row in rows for name in row.observations}
    wide = {row.chexpert for row in rows if not row.observations} - {None}
    found = {finding.observation for finding in reading}
    return {name for name in found - named if observation(name).chexpert not in wide}


def check(style: str, seeds: range) -> None:
    """Every vector is stated whole and comes back whole, with nothing else in the text."""
    for seed in seeds:
        labels = consistent(style, seed)
        text = label_report(labels, f"study {seed}", style)
        kept = stated_labels(labels, style)
        assert {**labels, **kept} == labels and set(labels) - set(kept) <= {STYLES[style].nothing}, labels
        reading = read(text)
        assert not unlike(labels, reading, style), (labels, text)
        assert not invented(labels, reading, style), (labels, text)


@pytest.mark.parametrize("style", STYLES)
def test_labels_come_back_from_the_text(style: str) -> None:
    check(style, range(400))


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_a_thousand_other_vectors_come_back_from_the_text(style: str) -> None:
    """Vectors of other seeds than the quick test's."""
    check(style, range(1000, 2000))


@pytest.mark.parametrize("style", STYLES)
def test_of_a_contradiction_what_is_stated_comes_back(style: str) -> None:
    """A vector drawn without care: the text still says one thing of each observation."""
    for seed in range(300):
        labels = drawn(style, seed)
        if STYLES[style].nothing:
            labels[str(STYLES[style].nothing)] = (1, 0, -1)[seed % 3]
        kept = stated_labels(labels, style)
        assert kept.items() <= labels.items()
        text = label_report(labels, f"study {seed}", style)
        assert not unlike(kept, read(text), style), (labels, text)


@pytest.mark.parametrize("style", STYLES)
def test_every_sentence_by_itself_says_its_label(style: str) -> None:
    """Each name in each frame and each whole sentence, so that no wording hides behind the luck of the draw."""
    row = STYLES[style]
    for name, wording in row.wordings.items():
        for value, frames in FRAMES.items():
            names = wording.names if value else wording.denied or wording.names
            framed = [
                capital(frame.format(list=one, bare=without_article(one), **{"is": "is"}))
                for frame in frames.templates
                for one in names
            ]
            for sentence in (*framed, *wording.sentences(value), *(() if value else wording.beside)):
                reading = read(sentence)
                if wording.alone:
                    heard = (len(reading.findings), len(reading.normal), len(reading.unread))
                    assert heard == ((0, 1, 0) if value == 0 else (0, 0, 1)), sentence
                else:
                    assert read_value(reading, row.corpus, name) == value, sentence
                    assert not reading.unread, sentence


def test_only_labels_without_a_name_in_the_vocabulary_stand_alone() -> None:
    """Four of VinDr-CXR's 28: the reader can tell them as heard or denied, and no more."""
    alone = {(style, name) for style, row in STYLES.items() for name, wording in row.wordings.items() if wording.alone}
    names = {"Calcification", "Other lesion", "Tuberculosis", "Other diseases"}
    assert alone == {("vindr-cxr", name) for name in names}
    assert not any(map_label("vindr-cxr", name).observations for name in names)


@pytest.mark.parametrize("style", STYLES)
def test_a_style_states_every_label_of_its_corpus(style: str) -> None:
    row = STYLES[style]
    assert {*row.wordings, *({row.nothing} if row.nothing else ())} == set(LABEL_MAPS[row.corpus])


def test_the_words_depend_on_the_study_alone() -> None:
    """The order in which a table lists its labels changes nothing; another study gets other words."""
    labels = {"Edema": 1, "Pneumothorax": 0, "Fracture": 0, "Cardiomegaly": -1}
    turned = dict(reversed(labels.items()))
    assert label_report(labels, "a", "chexpert") == label_report(turned, "a", "chexpert")
    texts = {label_report(labels, f"study {index}", "chexpert") for index in range(100)}
    assert len(texts) > 90
    assert label_report(labels, "a", "chexpert") != label_report(labels, "a", "brax")


def test_the_order_of_sentences_varies() -> None:
    """What is present does not always come first, and negatives are joined now and then."""
    labels = {"Edema": 1, "Pneumothorax": 0, "Fracture": 0, "Pneumonia": 0}
    texts = [label_report(labels, str(index), "chexpert") for index in range(200)]
    first = Counter(read(text)[0].observation for text in texts)
    assert len(first) == 4 and min(first.values()) > 10
    assert 20 < sum(" or " in text for text in texts) < 200


def test_a_missing_label_is_not_mentioned() -> None:
    assert {finding.observation for finding in read(label_report({"Edema": 0}, "a", "brax"))} == {"edema"}
    assert label_report({}, "a", "chexpert") == ""


def test_nothing_found_is_one_sentence_and_allows_devices() -> None:
    assert label_report({"No Finding": 1}, "a", "chexpert") in NOTHING_FOUND
    text = label_report({"No Finding": 1, "Support Devices": 1}, "a", "chexpert")
    assert chexpert_labels(read(text).findings, complete=False) == {"No Finding": 1, "Support Devices": 1}


@pytest.mark.parametrize("value", [1, -1])
def test_nothing_found_yields_to_a_finding(value: int) -> None:
    """A finding, sure or not, outweighs the label that says that there is none."""
    assert stated_labels({"No Finding": 1, "Edema": value}, "chexpert") == {"Edema": value}


@pytest.mark.parametrize("value", [0, -1])
def test_nothing_found_is_stated_by_no_word_unless_it_is_certain(value: int) -> None:
    assert label_report({"No Finding": value}, "a", "chexpert") == ""


def test_the_strongest_of_labels_for_one_thing_is_stated() -> None:
    """The vocabulary calls both a lung opacity: a text cannot have one and lack the other."""
    assert stated_labels({"Infiltration": 0, "Lung Opacity": 1}, "vindr-cxr") == {"Lung Opacity": 1}
    assert stated_labels({"Nodule/Mass": -1, "Lung tumor": 0}, "vindr-cxr") == {"Nodule/Mass": -1}


def test_the_parent_is_denied_beside_its_child_as_the_rest() -> None:
    """CheXpert's tables hold such rows; "no opacity" beside a consolidation would contradict it."""
    for index in range(50):
        text = label_report({"Lung Opacity": 0, "Consolidation": 1, "Edema": 0}, str(index), "chexpert")
        assert text.endswith(("No other lung opacity is seen.", "There is no further opacity of the lungs."))


def test_no_side_size_or_change_is_invented() -> None:
    for style in STYLES:
        for seed in range(100):
            for finding in read(label_report(consistent(style, seed), str(seed), style)):
                assert finding.side is finding.severity is finding.size_mm is finding.change is None


def test_bad_input_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="no style 'chexprt'.*Did you mean 'chexpert'"):
        label_report({}, "a", "chexprt")
    with pytest.raises(VocabularyError, match="'Oedema' is not a label of the style 'brax'.*Did you mean 'Edema'"):
        label_report({"Oedema": 1}, "a", "brax")
    with pytest.raises(DataError, match="'Edema' is 2; it must be 1"):
        label_report({"Edema": 2}, "a", "brax")
