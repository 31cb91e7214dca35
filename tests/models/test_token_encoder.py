from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError, DataError

pytest.importorskip("torch")

import torch  # noqa: E402
from tiny_text_models import TEXTS, bert_folder, roberta_folder, tiny_config  # noqa: E402
from transformers import BertModel  # noqa: E402

from cxrlab.core.model_interfaces import TokenEncoder  # noqa: E402
from cxrlab.metrics.bertscore import bert_score  # noqa: E402
from cxrlab.models.text_encoders import LocalTokenEncoder  # noqa: E402


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return roberta_folder(tmp_path_factory.mktemp("models") / "tiny-roberta")


def test_tokens_and_which_of_them_are_special(bert: Path) -> None:
    encoder = LocalTokenEncoder(bert, 2)
    assert isinstance(encoder, TokenEncoder) and encoder.name == "tiny-bert/2"
    (text,) = encoder.encode_tokens(["No edemas zebra."])
    assert text.tokens == ("[CLS]", "no", "edema", "##s", "[UNK]", ".", "[SEP]")
    assert text.special.tolist() == [True, False, False, False, False, False, True]
    assert text.vectors.shape == (7, 16) and text.vectors.dtype == np.float32


def test_vectors_are_those_of_the_layer_asked_for(bert: Path) -> None:
    """The whole model with all its layers, one text at a time, is the check."""
    whole = BertModel.from_pretrained(bert).eval()
    encoder = LocalTokenEncoder(bert, 2)
    with torch.no_grad():
        ids = encoder.tokenizer(TEXTS[1], return_tensors="pt")
        hidden = whole(**ids, output_hidden_states=True).hidden_states
    np.testing.assert_allclose(encoder.encode_tokens([TEXTS[1]])[0].vectors, hidden[2][0].numpy(), atol=1e-5)
    assert not np.allclose(hidden[2][0].numpy(), hidden[3][0].numpy(), atol=1e-2)


def test_batch_and_order_do_not_change_vectors(bert: Path) -> None:
    """Padding is masked; what remains is rounding."""
    texts = [*TEXTS, "", TEXTS[0]]
    together = LocalTokenEncoder(bert, 3, batch_size=4).encode_tokens(texts)
    alone = LocalTokenEncoder(bert, 3, batch_size=1)
    for text, encoded in zip(texts, together, strict=True):
        (single,) = alone.encode_tokens([text])
        assert single.tokens == encoded.tokens
        np.testing.assert_allclose(single.vectors, encoded.vectors, atol=1e-5)


def test_long_and_empty_texts(bert: Path) -> None:
    """The tokenizer knows no limit, so the model's 40 positions are it; an empty text has special tokens alone."""
    encoder = LocalTokenEncoder(bert, 1)
    long, empty, blank = encoder.encode_tokens(["edema " * 4000, "", "  "])
    assert len(long.tokens) == 40 and long.tokens[-1] == "[SEP]"
    assert empty.tokens == blank.tokens == ("[CLS]", "[SEP]") and empty.special.all()
    assert bert_score(long, empty).tolist() == [0, 0, 0]
    assert encoder.encode_tokens([]) == []


def test_a_byte_level_tokenizer_reads_the_first_word_as_if_a_space_stood_before_it(roberta: Path) -> None:
    """So does the bert-score package; without it the first word would be another token than elsewhere."""
    encoder = LocalTokenEncoder(roberta, 2)
    assert encoder.max_length == 40 - 2
    first, empty = encoder.encode_tokens(["edema edema", ""])
    words = [token for token in first.tokens if not token.startswith("<")]
    assert words[: len(words) // 2] == words[len(words) // 2 :] and words[0].startswith("Ġ")
    assert empty.tokens == ("<s>", "</s>")
    assert len(encoder.encode_tokens(["edema " * 400])[0].tokens) == 38


def test_a_text_scores_1_against_itself_and_less_against_another(roberta: Path) -> None:
    reported, said = LocalTokenEncoder(roberta, 3).encode_tokens(TEXTS[:2])
    assert bert_score(reported, reported).tolist() == pytest.approx([1, 1, 1])
    assert bert_score(reported, said)[2] < 0.99


def test_what_cannot_be_loaded_is_one_sentence(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="layer 4 of .* does not exist; it has layers 1 to 3"):
        LocalTokenEncoder(bert, 4)
    with pytest.raises(ConfigError, match="layer 0"):
        LocalTokenEncoder(bert, 0)
    with pytest.raises(DataError, match="is not a folder"):
        LocalTokenEncoder(tmp_path / "absent", 1)
    bare = tmp_path / "tokenizer-alone"
    LocalTokenEncoder(bert, 1).tokenizer.save_pretrained(bare)
    with pytest.raises(DataError, match="holds no encoder that transformers can load"):
        LocalTokenEncoder(bare, 1)


def test_a_model_that_also_decodes_is_refused(bert: Path, tmp_path: Path) -> None:
    from transformers import BartConfig

    folder = tmp_path / "bart"
    LocalTokenEncoder(bert, 1).tokenizer.save_pretrained(folder)
    sizes = tiny_config()
    BartConfig(
        d_model=16, encoder_layers=2, decoder_layers=2, max_position_embeddings=sizes["max_position_embeddings"]
    ).save_pretrained(folder)
    with pytest.raises(ConfigError, match="holds a bart"):
        LocalTokenEncoder(folder, 1)
