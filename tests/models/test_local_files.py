from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tiny_text_models import bert_tokenizer  # noqa: E402
from transformers.utils import logging  # noqa: E402

from cxrlab.core.errors import DataError  # noqa: E402
from cxrlab.models.local_files import first_line, load_tokenizer, quiet_loading  # noqa: E402


def test_a_tokenizer_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    saved = bert_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path)("no edemas").input_ids == saved("no edemas").input_ids


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no tokenizer that transformers can load"):
        load_tokenizer(tmp_path)


def test_a_model_without_the_files_of_its_tokenizer_is_refused(tmp_path: Path) -> None:
    """For a BERT without them transformers gives a tokenizer that turns every word into [UNK]."""
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 100}')
    with pytest.raises(DataError, match="its vocabulary is empty"):
        load_tokenizer(tmp_path)


def test_the_level_of_warnings_comes_back_even_after_an_error() -> None:
    before = logging.get_verbosity()
    with pytest.raises(ZeroDivisionError), quiet_loading():
        assert logging.get_verbosity() == logging.ERROR
        1 / 0  # noqa: B018
    assert logging.get_verbosity() == before


def test_a_long_message_is_cut_to_its_first_line() -> None:
    assert first_line(ValueError("\nshort\nlong story")) == "short"
