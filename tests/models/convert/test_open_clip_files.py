"""Configs of open_clip: what they say is converted or refused, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from published_checkpoints import MEAN, PATCH, STD, bert, open_clip_config, open_clip_folder, save_tokenizer

from cxrlab.core.errors import CxrlabError
from cxrlab.models.convert import ConvertConfig, convert
from cxrlab.models.convert_open_clip import OpenClip, image_processor, read_open_clip

SIDE = 3 * PATCH


def encoder(image: Any = SIDE, **preprocessing: Any) -> OpenClip:
    return OpenClip({"image_size": image}, {}, preprocessing, 8, {})


def test_images_are_prepared_as_open_clip_does() -> None:
    """Twice as wide as high: the middle is cut out, and a grey of 0.5 comes out as (0.5 - mean) / deviation."""
    image = np.full((SIDE, 2 * SIDE, 3), 128, np.uint8)
    image[:, : SIDE // 2] = image[:, -SIDE // 2 :] = 255
    pixels = image_processor(encoder())(image, return_tensors="np")["pixel_values"][0]
    expected = (128 / 255 - np.array(MEAN)) / np.array(STD)
    assert pixels.shape == (3, SIDE, SIDE)
    assert np.abs(pixels[:, :, 2:-2] - expected[:, None, None]).max() < 1e-5
    squeezed = image_processor(encoder(resize_mode="squash", interpolation="bilinear"))(image, return_tensors="np")
    assert squeezed["pixel_values"].shape == (1, 3, SIDE, SIDE)
    assert squeezed["pixel_values"][0, 0, 0, 0] > pixels[0, 0, 0] + 1  # the white margin is still there


@pytest.mark.parametrize(
    "preprocessing",
    [{"resize_mode": "longest"}, {"interpolation": "random"}, {"mode": "L"}, {"size": 384}],
    ids=lambda setting: next(iter(setting)),
)
def test_other_preparations_are_refused(preprocessing: dict[str, Any]) -> None:
    with pytest.raises(CxrlabError, match="preprocess_cfg"):
        image_processor(encoder(**preprocessing))


@pytest.mark.parametrize(("size", "side"), [(SIDE, SIDE), ([SIDE, SIDE], SIDE), ([SIDE, 7], None), ("big", None)])
def test_images_are_squares(size: Any, side: int | None) -> None:
    if side is None:
        with pytest.raises(CxrlabError, match="squares"):
            assert encoder(size).image
    else:
        assert encoder(size).image == side


def test_what_a_folder_must_hold(tmp_path: Path) -> None:
    """One config and one file of weights; which one was meant is not guessed."""
    with pytest.raises(CxrlabError, match=r"a config of open_clip .* holds none"):
        read_open_clip(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps(open_clip_config()))
    with pytest.raises(CxrlabError, match=r"weights .* holds none"):
        read_open_clip(tmp_path)
    for name in ("a.pt", "b.pt"):
        torch.save({"w": torch.ones(1)}, tmp_path / name)
    with pytest.raises(CxrlabError, match=r"several: a\.pt, b\.pt"):
        read_open_clip(tmp_path)
    (tmp_path / "open_clip_config.json").write_text("[]")
    with pytest.raises(CxrlabError, match="is not a config of open_clip"):
        read_open_clip(tmp_path)


def reported(tmp_path: Path, **text: Any) -> str:
    with pytest.raises(CxrlabError) as error:
        convert("open-clip", open_clip_folder(tmp_path / "in", **text), ConvertConfig(), tmp_path / "out")
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ({"hf_pooler_type": "mean_pooler"}, "pools by 'mean_pooler'"),
        ({"hf_proj_type": None}, "projects by null"),
        ({"hf_proj_type": "linear"}, "the text projection (linear): 1 tensor missing (proj.weight)"),
        ({"hf_model_name": "roberta-base"}, "--text"),
        # A BERT that pools by its own pooler, whose weights are not in the file.
        ({"hf_pooler_type": "cls_pooler"}, "pooler.dense.bias"),
    ],
)
def test_text_vision_encoders_that_cannot_be_converted(tmp_path: Path, text: dict[str, Any], named: str) -> None:
    assert named in reported(tmp_path, **text)


def test_the_older_spelling_of_the_pooler_is_asked_about(tmp_path: Path) -> None:
    """It meant BERT's pooler to some versions and the first token to others; a guess could be wrong."""
    source = open_clip_folder(tmp_path / "in")
    config = json.loads((source / "open_clip_config.json").read_text())
    text = config["model_cfg"]["text_cfg"]
    text |= {"pooler_type": "cls_pooler", "proj": text.pop("hf_proj_type")}
    del text["hf_pooler_type"]
    (source / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(CxrlabError, match="cls_last_hidden_state_pooler"):
        convert("open-clip", source, ConvertConfig(), tmp_path / "out")


def test_the_text_models_own_config_is_used_where_given(tmp_path: Path) -> None:
    """Heads and activation are not in the weights: the folder of --text knows, and must be a BERT that fits."""
    source, text = open_clip_folder(tmp_path / "in", hf_model_name="some/other-bert"), tmp_path / "text"
    text.mkdir()
    save_tokenizer(text)
    words, width = bert()["embeddings.word_embeddings.weight"].shape
    sizes = {"vocab_size": words, "hidden_size": width, "intermediate_size": 128, "num_hidden_layers": 2}
    config = {"model_type": "bert", "num_attention_heads": 4, "max_position_embeddings": 40, **sizes}
    (text / "config.json").write_text(json.dumps(config))
    convert("open-clip", source, ConvertConfig(text=text), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["text_config"]["num_attention_heads"] == 4
    for change, named in (
        ({"model_type": "roberta"}, "describes a 'roberta'"),
        ({"vocab_size": 9}, "23×64, not 9×64"),
        ({"pad_token_id": 3}, "pads with '\\[PAD\\]', number 0"),
        ({"num_hidden_layers": 3}, r"encoder\.layer\.2\."),
    ):
        (text / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(CxrlabError, match=named):
            convert("open-clip", source, ConvertConfig(text=text), tmp_path / "other")
    (text / "config.json").write_text(json.dumps(config))
    save_tokenizer(text, "pneumothorax")
    with pytest.raises(CxrlabError, match="24 tokens and the text encoder 23"):
        convert("open-clip", source, ConvertConfig(text=text), tmp_path / "other")


def test_a_folder_without_tokenizer(tmp_path: Path) -> None:
    source = open_clip_folder(tmp_path / "in")
    for path in source.glob("*token*"):
        path.unlink()
    for path in source.glob("vocab*"):
        path.unlink()
    with pytest.raises(CxrlabError, match="tokenizer"):
        convert("open-clip", source, ConvertConfig(), tmp_path / "out")


def test_vision_encoders_that_compute_something_else(tmp_path: Path) -> None:
    """Another pooling or projection, or a name of timm's whose blocks differ in what no tensor shows."""
    source = open_clip_folder(tmp_path / "in")
    path = source / "open_clip_config.json"
    for change, named in (
        ({"timm_pool": "avg"}, "timm_pool='avg'"),
        ({"timm_proj": "mlp"}, "timm_proj='mlp'"),
        ({"timm_model_name": "vit_base_patch16_clip_224"}, "'vit_base_patch16_clip_224'"),
        ({"timm_model_name": None}, "timm_model_name"),
    ):
        config = json.loads(path.read_text())
        config["model_cfg"] = open_clip_config()
        config["model_cfg"]["vision_cfg"] |= change
        path.write_text(json.dumps(config))
        with pytest.raises(CxrlabError, match=named):
            convert("open-clip", source, ConvertConfig(), tmp_path / "out")
