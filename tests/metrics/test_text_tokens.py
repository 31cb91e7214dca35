"""What counts as a word, under each of the three conventions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.tokenize import tokenize
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from cxrlab.metrics import tokenization
from cxrlab.metrics.tokenization import coco_words, stems, words_13a

# Letters, digits, every kind of mark and space, and what lower-casing changes in length.
ODD = st.text("aAbBeE09 .,-;:!?'\"&<>/()[]{}%_\n\t\r\u00a0\u2028“”—…éİΣßK²🫁", max_size=60)
PIECES = st.lists(
    st.sampled_from(
        ["3.5", "1,000", "2.", ".5", "5-6", "x-ray", "&quot;", "&amp;lt;", "<skipped>", "-\n", "end.\n", "T.i.d."]
    ),
    max_size=8,
).map(" ".join)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No pleural effusion.", "no pleural effusion ."),
        ("Heart (AP view): normal; lungs clear.No edema!", "heart ( ap view ) : normal ; lungs clear . no edema !"),
        ("A 2.5 cm nodule, 1,000 ml; .5 mm.", "a 2.5 cm nodule , 1,000 ml ; .5 mm ."),
        ("1. Stable... 2.Clear", "1 . stable ... 2 . clear"),
        ("x-ray and/or patient's 50% <br>", "x-ray and/or patient's 50% <br>"),
        ('"Patchy" — likely [old]', '" patchy " — likely [ old ]'),
        ("Normal.\n\nNo\tedema.  Clear", "normal . no edema . clear"),
    ],
)  # fmt: skip
def test_prose_has_its_marks_split_off(text: str, words: str) -> None:
    """Marks between digits, and those that stand within words, stay."""
    assert list(coco_words(text)) == words.split(" ")


@given(ODD | PIECES)
def test_split_text_is_not_split_again(text: str) -> None:
    """Joining the words with spaces and splitting once more changes nothing."""
    words = [word for word in coco_words(text) if word]
    assert list(coco_words(" ".join(words))) == words


def test_a_second_space_counts_only_in_text_that_is_split_already() -> None:
    """Published scores of such text cut at every single space; prose may have two spaces after a full stop."""
    assert coco_words("no  edema .") == ("no", "", "edema", ".")
    assert coco_words("No  edema.") == coco_words("no  edema.") == ("no", "edema", ".")
    assert coco_words("") == coco_words("  ") == coco_words("\n") == ()


@settings(max_examples=300)
@given(ODD | PIECES)
def test_13a_is_sacrebleus(text: str) -> None:
    """Cutting at white space first changes nothing."""
    assert " ".join(words_13a(text)) == Tokenizer13a()(text.rstrip())


@settings(max_examples=300)
@given(ODD | st.text(max_size=60))
def test_stems_are_rouge_scores(text: str) -> None:
    """Any text, also where lower-casing makes two letters of one."""
    assert list(stems(text)) == tokenize(text, PorterStemmer())


def test_the_memory_of_pieces_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts afresh when full and still gives the same words."""
    monkeypatch.setattr(tokenization, "_PIECES", 3)
    text = " ".join(f"word{number}," for number in range(20))
    stems.cache_clear()
    assert list(stems(text)) == tokenize(text, PorterStemmer())
    assert len(tokenization._STEMS) <= 3
