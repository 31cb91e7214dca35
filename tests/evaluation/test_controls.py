from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.evaluation.score import FLOORS, constant_normal, empty, repeated_word, shuffled, unrelated
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.models.baselines import REPORTS


def batch(*texts: str | None, patients: str = "") -> Batch:
    names = patients or "abcdefgh"
    return Batch([Pair(str(place), text, "", names[place]) for place, text in enumerate(texts)])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_commonest_word_as_often_as_each_reference_has_words() -> None:
    """'no' occurs three times; a reference that is not there gets an empty text."""
    assert repeated_word(batch("No effusion no edema.", "No", None), rng()) == ["no no no no", "no", ""]


def test_the_word_does_not_depend_on_the_order() -> None:
    assert repeated_word(batch("b a", "a b"), rng()) == repeated_word(batch("a b", "b a"), rng())


def test_unrelated_text_has_the_references_length() -> None:
    lengths = [len(text.split()) for text in unrelated(batch("one two three", "", " ".join(["w"] * 500)), rng())]
    assert lengths == [3, 0, 500]


def test_constant_texts() -> None:
    assert constant_normal(batch("a", "b"), rng()) == [REPORTS["normal"]] * 2
    assert empty(batch("a", "b"), rng()) == ["", ""]


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=40), st.integers(0, 5))
def test_shuffled_references_are_always_another_patients(patients: list[str], seed: int) -> None:
    """Each reference is used once, none for its own patient; impossible only when one patient has over half."""
    pairs = [Pair(str(place), f"{name}{place}", "", name) for place, name in enumerate(patients)]
    given_ = shuffled(Batch(pairs), np.random.default_rng(seed))
    if 2 * max(map(patients.count, patients)) > len(patients):
        assert given_ is None
    else:
        assert given_ is not None and sorted(given_) == sorted(pair.reference or "" for pair in pairs)
        assert all(text[0] != pair.patient for text, pair in zip(given_, pairs, strict=True))


def test_every_control_gives_one_text_a_pair() -> None:
    texts = ("Small effusion.", "", None, "___", "🫁")
    for name, control in FLOORS.items():
        assert len(control(batch(*texts), rng()) or ()) == len(texts), name
