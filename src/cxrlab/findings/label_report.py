"""Writes the report of a study of which only labels are known, in varied words.

The text states the labels and nothing else: no side, no size, nothing of a label that is missing. It is the same for
the same study on every machine. The sentences are in label_sentences.json.

`stated_labels` returns the labels that the text states: all of a consistent set; of an inconsistent set, what is left
without the contradictions. A set is consistent when

1. the label for "nothing found" is 1 only where every other label but devices is 0 or missing, and is 0 only
   where one of them is 1 or -1 (the text then states that one; "nothing found" is never uncertain);
2. labels that stand for one observation of the vocabulary ("Infiltration" and "Lung Opacity" of VinDr-CXR) agree.
   Where they do not, the strongest is stated: present before possible before absent.

A parent of CheXpert's hierarchy may be absent where a child is present, as in the labels of that corpus: the
text then says that there is no *other* opacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cxrlab.core.errors import ConfigError, DataError, VocabularyError, did_you_mean, short_repr
from cxrlab.core.label_maps import map_label
from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import CHEXPERT_CHILDREN
from cxrlab.findings.data_files import load_data
from cxrlab.findings.lexicon import capital, listed, without_article

_STRENGTH = {0: 0, -1: 1, 1: 2}
_DEVICES = "Support Devices"
# How often a label is stated in a sentence of its own words and not in a frame, where it has such sentences.
_OWN_WORDS = 0.4


def label_report(labels: Mapping[str, int], study_id: str, style: str) -> str:
    """Sentences that state these labels; empty where they state nothing.

    Args:
        labels: Label of the style → 1 present, 0 absent, -1 uncertain; a missing label is not mentioned.
        study_id: Chooses the words, together with the style.
        style: A name of `STYLES`.
    """
    row = _style(style)
    rest = stated_labels(labels, style)
    writer = _Writer(style, rest, study_id)
    sentences = writer.shuffled([sentence for value in (1, -1, 0) for sentence in writer.sentences(value)])
    # The denials of labels that include something that is there or may be come last.
    sentences += [writer.pick(beside) for name in rest if (beside := writer.beside(name))]
    if row.nothing in rest:
        sentences.insert(0 if writer.chance(0.5) else len(sentences), writer.pick(NOTHING_FOUND))
    return " ".join(sentences)


def stated_labels(labels: Mapping[str, int], style: str) -> dict[str, int]:
    """The labels that the text of this style states, in the order of the style: see the top of this file."""
    row = _style(style)
    for name, value in labels.items():
        if name not in row.wordings and name != row.nothing:
            known = (*row.wordings, *((row.nothing,) if row.nothing else ()))
            raise VocabularyError(
                f"'{name}' is not a label of the style '{style}'.{did_you_mean(name, known)} Labels: {', '.join(known)}."
            )
        if value not in _STRENGTH:
            raise DataError(
                f"the label '{name}' is {short_repr(value)}; it must be 1 (present), 0 (absent) or -1 (uncertain), "
                f"or be left out."
            )
    given = {name: labels[name] for name in row.wordings if name in labels}
    # A label gives way to a stronger one for an observation that it would deny or leave open.
    kept = {
        name: value
        for name, value in given.items()
        if all(_STRENGTH[given[rival]] <= _STRENGTH[value] for rival in row.rivals[name] if rival in given)
    }
    found = any(value for name, value in kept.items() if name != _DEVICES)
    if row.nothing and labels.get(row.nothing) == 1 and not found:
        kept[row.nothing] = 1
    return kept


def _style(name: str) -> Style:
    if name not in STYLES:
        raise ConfigError(
            f"there is no style '{name}' for labels.{did_you_mean(name, STYLES)} Styles: {', '.join(STYLES)}."
        )
    return STYLES[name]


class _Writer:
    """The words for one study."""

    def __init__(self, style: str, labels: Mapping[str, int], study_id: str) -> None:
        self.style = _style(style)
        self.labels = labels
        self.rng = generator(0, "label report", style, study_id)

    def chance(self, share: float) -> bool:
        """True in this share of all draws."""
        return bool(self.rng.random() < share)

    def pick(self, choices: Sequence[str]) -> str:
        """One of them, each as likely."""
        return choices[int(self.rng.random() * len(choices))]

    def shuffled(self, items: Sequence[str]) -> list[str]:
        """The same in any order."""
        keys = self.rng.random(len(items))
        return [items[index] for index in sorted(range(len(items)), key=lambda index: float(keys[index]))]

    def sentences(self, value: int) -> list[str]:
        """All labels of this value, some in sentences of their own and the rest in lists."""
        done: list[str] = []
        waiting: list[Wording] = []
        names = [name for name, given in self.labels.items() if given == value and name != self.style.nothing]
        for name in self.shuffled([name for name in names if not self.beside(name)]):
            wording = self.style.wordings[name]
            own = wording.sentences(value) if self.chance(_OWN_WORDS) else ()
            if own:
                done.append(self.pick(own))
            elif wording.alone:
                done.append(self._framed([wording], value))
            else:
                waiting.append(wording)
        while waiting:
            count = 1 + int(self.rng.random() * FRAMES[value].longest)
            done.append(self._framed(waiting[:count], value))
            waiting = waiting[count:]
        return done

    def beside(self, name: str) -> tuple[str, ...]:
        """Sentences that deny a label which includes something that is present or possible."""
        if self.labels[name] or not any(self.labels.get(child) for child in self.style.children.get(name, ())):
            return ()
        return self.style.wordings[name].beside

    def _framed(self, wordings: Sequence[Wording], value: int) -> str:
        names = [self.pick(wording.names if value else wording.denied or wording.names) for wording in wordings]
        # Under one frame the first article speaks for all: "no nodule or mass", "possible nodule and effusion".
        names.sort(key=lambda name: name.startswith("other"))  # "… or other pleural abnormality" ends a list
        frame = FRAMES[value]
        bare = listed([without_article(name) for name in names], frame.joint)
        verb = "are" if len(names) > 1 else "is"
        return capital(self.pick(frame.templates).format(list=listed(names, frame.joint), bare=bare, **{"is": verb}))


@dataclass(frozen=True)
class Frames:
    """Sentences around a list of names of labels that have one value."""

    # With `{list}` for the names, `{bare}` for the names without articles, `{is}` for the verb.
    templates: tuple[str, ...]
    joint: str  # what joins the list; a denial reaches through "or"
    longest: int  # most names in a list


@dataclass(frozen=True)
class Wording:
    """How one label is worded."""

    names: tuple[str, ...]  # with the article that they take, for what is there or may be there
    denied: tuple[str, ...] = ()  # names for what is not there; empty where `names` without their articles serve
    present: tuple[str, ...] = ()  # whole sentences, used beside the frames; so are the next two
    absent: tuple[str, ...] = ()  # for the value 0
    possible: tuple[str, ...] = ()  # for the value -1
    # Sentences for the value 0 where a label that this one includes is present or possible: "no other …".
    beside: tuple[str, ...] = ()
    # Never in a list: the reader does not know it by name and would take the list for its neighbours.
    alone: bool = False

    def sentences(self, value: int) -> tuple[str, ...]:
        """The whole sentences for a value."""
        return {1: self.present, 0: self.absent, -1: self.possible}[value]


@dataclass(frozen=True)
class Style:
    """The labels of a kind of corpus."""

    corpus: str  # row of `core.label_maps` that says what they mean
    labels: Mapping[str, str]  # label → key of its wording
    nothing: str | None = None  # the label that says that nothing was found, or None

    @cached_property
    def wordings(self) -> Mapping[str, Wording]:
        """The wording of each label."""
        return {label: _SENTENCES.wordings[key] for label, key in self.labels.items()}

    @cached_property
    def rivals(self) -> Mapping[str, tuple[str, ...]]:
        """Label → the others of the style that share an observation with it."""
        means = {name: set(map_label(self.corpus, name).observations) for name in self.labels}
        return {name: tuple(o for o in means if o != name and means[o] & means[name]) for name in means}

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Label → the labels of the style that CheXpert's hierarchy puts under it."""
        labels = {name: map_label(self.corpus, name).label for name in self.labels}
        below = {name: CHEXPERT_CHILDREN.get(labels[name] or "", ()) for name in self.labels}
        return {name: tuple(other for other in labels if labels[other] in below[name]) for name in self.labels}


@dataclass(frozen=True)
class LabelSentences:
    """Content of label_sentences.json: frames by value, sentences for a normal image, wordings by key, styles by name."""

    frames: Mapping[str, Frames]
    nothing_found: tuple[str, ...]
    wordings: Mapping[str, Wording]
    styles: Mapping[str, Style]


_SENTENCES = load_data(Path(__file__).with_name("label_sentences.json"), LabelSentences)
FRAMES = {value: _SENTENCES.frames[name] for value, name in ((1, "present"), (0, "absent"), (-1, "possible"))}
NOTHING_FOUND, STYLES = _SENTENCES.nothing_found, _SENTENCES.styles
