"""Candidates that nobody should be pleased with: what a metric gives them is the floor of every score beside it.

A control knows the references' texts and lengths at most, never an image. A metric under which a
control comes near a model does not measure what the model is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from cxrlab.metrics.pairs import Batch
from cxrlab.models.baselines import REPORTS

# None where the control cannot be made of these references.
Control = Callable[[Batch, np.random.Generator], list[str] | None]

# Of another world, with no word that an image could show.
UNRELATED = (
    "The ferry leaves the harbour at seven and reaches the island before noon. On board there is coffee, bread and a "
    "shelf of old novels. Children count gulls from the upper deck while the captain talks about the weather of the "
    "coming week. In spring the meadows behind the village are yellow, and the bakery opens its garden for guests. "
    "Whoever wants to stay overnight should ask at the post office, where the keys of the cottages are kept."
)


def repeated_word(batch: Batch, rng: np.random.Generator) -> list[str]:
    """The commonest word of the references, as often as each reference has words."""
    words = Counter(word for text in batch.references for word in text.lower().split() if word.isalpha())
    # The first in the alphabet among equals, so that the order of the studies does not matter.
    word = min(words, key=lambda word: (-words[word], word), default="the")
    return [" ".join([word] * len(text.split())) for text in batch.references]


def empty(batch: Batch, rng: np.random.Generator) -> list[str]:
    """No word at all."""
    return [""] * len(batch)


def unrelated(batch: Batch, rng: np.random.Generator) -> list[str]:
    """Prose about a ferry, cut or repeated to the length of each reference."""
    words = UNRELATED.split()
    lengths = [len(text.split()) for text in batch.references]
    return [" ".join((words * (length // len(words) + 1))[:length]) for length in lengths]


def constant_normal(batch: Batch, rng: np.random.Generator) -> list[str]:
    """The same normal report for everyone: `stub:normal`."""
    return [REPORTS["normal"]] * len(batch)


def shuffled(batch: Batch, rng: np.random.Generator) -> list[str] | None:
    """Another patient's reference for each; None when one patient has more than half of the studies."""
    patients = [pair.patient or pair.id for pair in batch.pairs]
    partners = other_patients(patients, [pair.id for pair in batch.pairs], rng)
    return None if partners is None else [batch.references[place] for place in partners]


def other_patients(patients: Sequence[str], ids: Sequence[str], rng: np.random.Generator) -> list[int] | None:
    """For each study the place of one of another patient, each used once; None when one patient has more than half.

    Patients are put in random order with their studies side by side, and every study takes the one that stands as
    many places further on as the largest patient has studies: never one of the same patient.

    Args:
        patients: Of each study.
        ids: Of each study, all different.
        rng: Decides the order of the patients.
    """
    sizes = Counter(patients)
    step = max(sizes.values(), default=0)
    if 2 * step > len(patients):
        return None
    names = sorted(sizes)
    turn = dict(zip(names, rng.permutation(len(names)).tolist(), strict=True))
    order = sorted(range(len(patients)), key=lambda place: (turn[patients[place]], ids[place]))
    given = [0] * len(patients)
    for rank, place in enumerate(order):
        given[place] = order[(rank + step) % len(order)]
    return given


CONTROLS: Mapping[str, Control] = MappingProxyType(
    {
        "repeated-word": repeated_word,
        "empty": empty,
        "unrelated": unrelated,
        "constant-normal": constant_normal,
        "shuffled": shuffled,
    }
)
