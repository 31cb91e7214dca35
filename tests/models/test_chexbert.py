from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.errors import DataError

pytest.importorskip("torch")

import torch  # noqa: E402
from tiny_text_models import TEXTS, bert_tokenizer, chexbert_weights, save_chexbert  # noqa: E402
from transformers import BertConfig, BertModel  # noqa: E402

from cxrlab.core.model_interfaces import Labeler, TextEmbedder  # noqa: E402
from cxrlab.core.vocabulary import CHEXPERT_14  # noqa: E402
from cxrlab.metrics.radcliq import semb  # noqa: E402
from cxrlab.metrics.report_pairs import Batch, Pair  # noqa: E402
from cxrlab.models.text_encoders import HEADS, CheXbert  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CheXbert:
    folder = tmp_path_factory.mktemp("chexbert")
    return CheXbert(save_chexbert(folder / "chexbert.pth", chexbert_weights(folder)), folder)


def test_the_heads_stand_in_the_published_order() -> None:
    assert HEADS == (
        "Enlarged Cardiomediastinum",
        "Cardiomegaly",
        "Lung Opacity",
        "Lung Lesion",
        "Edema",
        "Consolidation",
        "Pneumonia",
        "Atelectasis",
        "Pneumothorax",
        "Pleural Effusion",
        "Pleural Other",
        "Fracture",
        "Support Devices",
        "No Finding",
    )


def test_it_is_a_labeler_and_an_embedder(model: CheXbert) -> None:
    assert isinstance(model, Labeler) and isinstance(model, TextEmbedder) and model.name == "chexbert"


def test_each_class_of_a_head_becomes_its_label(tmp_path: Path) -> None:
    """With weights of 0 the bias decides: blank, positive, negative and uncertain in turn; No Finding positive."""
    state = chexbert_weights(tmp_path)
    for head in range(14):
        state[f"module.linear_heads.{head}.weight"].zero_()
        state[f"module.linear_heads.{head}.bias"][1 if head == 13 else head % 4] = 1
    (labels,) = CheXbert(save_chexbert(tmp_path / "c.pth", state), tmp_path).label(["no edema"])
    assert labels == {
        "No Finding": 1,
        "Cardiomegaly": 1,
        "Lung Opacity": 0,
        "Lung Lesion": -1,
        "Consolidation": 1,
        "Pneumonia": 0,
        "Atelectasis": -1,
        "Pleural Effusion": 1,
        "Pleural Other": 0,
        "Fracture": -1,
    }
    assert list(labels) == [name for name in CHEXPERT_14 if name in labels]


def test_scores_are_those_of_the_heads_on_the_first_token(tmp_path: Path) -> None:
    """The same weights run by hand, one report at a time."""
    state = chexbert_weights(tmp_path)
    model = CheXbert(save_chexbert(tmp_path / "c.pth", state), tmp_path)
    bert = BertModel(BertConfig.from_pretrained(tmp_path)).eval()
    bert.load_state_dict(
        {
            key[12:]: value
            for key, value in state.items()
            if key.startswith("module.bert.") and "position_ids" not in key
        }
    )
    for text, labels, vector in zip(TEXTS, model.label(TEXTS), model.embed_texts(TEXTS), strict=True):
        with torch.no_grad():
            first = bert(**model.tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0]
        for head, name in enumerate(HEADS):
            chosen = int((state[f"module.linear_heads.{head}.weight"] @ first).argmax())
            assert labels.get(name) == {0: None, 1: 1, 2: 0, 3: -1}[chosen], name
        np.testing.assert_allclose(vector, (first / first.norm()).numpy(), atol=1e-5)


def test_order_batch_and_white_space_change_nothing(model: CheXbert) -> None:
    texts = [*TEXTS, "", "edema " * 4000, TEXTS[0].replace(" ", " \n ")]
    labels, vectors = model.label(texts), model.embed_texts(texts)
    assert labels[-1] == labels[0]
    assert [model.label([text])[0] for text in texts] == labels
    assert model.label(texts[::-1])[::-1] == labels
    np.testing.assert_allclose(np.concatenate([model.embed_texts([text]) for text in texts]), vectors, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert model.label([]) == [] and model.embed_texts([]).shape == (0, 16)


def test_similarity_of_a_report_with_itself_is_1(model: CheXbert) -> None:
    batch = Batch([Pair("1", TEXTS[0], TEXTS[0]), Pair("2", TEXTS[0], TEXTS[1]), Pair("3", None, TEXTS[1])])
    same, other, nothing = semb(model)(batch)
    assert same == pytest.approx(1, abs=1e-6) and other < 0.999 and np.isnan(nothing)


def test_keys_without_the_prefix_load_too(tmp_path: Path) -> None:
    state = {key.removeprefix("module."): value for key, value in chexbert_weights(tmp_path).items()}
    assert len(CheXbert(save_chexbert(tmp_path / "c.pth", state), tmp_path).label(TEXTS)) == len(TEXTS)


def test_without_a_config_the_encoder_is_bert_base(tmp_path: Path) -> None:
    """A folder with the tokenizer alone means bert-base-uncased; the tiny weights then do not fit and are named."""
    path = save_chexbert(tmp_path / "c.pth", chexbert_weights(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(DataError, match=r"of shape \[.*\], and the config in .* requires \[.*768.*\]"):
        CheXbert(path, tmp_path)


def _without(state: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != key}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: _without(s, "module.linear_heads.13.bias"), "lacks the weights 'linear_heads.13.bias'"),
        (
            lambda s: s | {"module.linear_heads.14.bias": torch.zeros(4)},
            "'linear_heads.14.bias', which CheXbert does not",
        ),
        (lambda s: s | {"module.linear_heads.13.bias": torch.zeros(4)}, r"'linear_heads.13.bias' of shape \[4\]"),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path: Path, change: Any, message: str) -> None:
    path = save_chexbert(tmp_path / "c.pth", change(chexbert_weights(tmp_path)))
    with pytest.raises(DataError, match=message):
        CheXbert(path, tmp_path)


def test_files_that_are_no_checkpoint_are_refused(tmp_path: Path) -> None:
    bert_tokenizer(tmp_path)
    path = tmp_path / "chexbert.pth"
    with pytest.raises(DataError, match="does not exist"):
        CheXbert(path, tmp_path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match="damaged or no file of torch"):
        CheXbert(path, tmp_path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=re.escape(str(path))):
        CheXbert(path, tmp_path)
    torch.save({"state_dict": {}}, path)
    with pytest.raises(DataError, match=r"has no 'model_state_dict' \(found: state_dict\)"):
        CheXbert(path, tmp_path)
    torch.save([1], path)
    with pytest.raises(DataError, match=r"has no 'model_state_dict' \(found: list\)"):
        CheXbert(path, tmp_path)


class Harmful:
    """Runs code when it is unpickled without care."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('a checkpoint ran code')",))


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    bert_tokenizer(tmp_path)
    torch.save({"model_state_dict": {}, "extra": Harmful()}, tmp_path / "c.pth")
    with pytest.raises(DataError, match="contains pickled code"):
        CheXbert(tmp_path / "c.pth", tmp_path)


def test_a_config_of_something_else_is_refused(tmp_path: Path) -> None:
    path = save_chexbert(tmp_path / "c.pth", chexbert_weights(tmp_path))
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError):
        CheXbert(path, tmp_path)
