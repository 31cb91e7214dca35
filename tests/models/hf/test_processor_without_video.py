"""Processors with a part for videos, opened without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_families import save_tiny
from transformers import LlavaProcessor, Qwen2_5_VLProcessor

from cxrlab.models.hf.checkpoint import processor_without_video, without_video

SETTINGS = {"local_files_only": True}


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_onevision", "smolvlm"])
def test_a_folder_opens_without_its_part_for_videos(family: str, tmp_path: Path) -> None:
    """Settings, template and name are the family's; what is saved again opens again."""
    save_tiny(family, tmp_path / "first")
    found = processor_without_video(tmp_path / "first")
    first = found.from_pretrained(tmp_path / "first", **SETTINGS)
    assert type(first).__name__ == json.loads((tmp_path / "first/processor_config.json").read_text())["processor_class"]
    assert first.chat_template and first.get_attributes() == ["image_processor", "tokenizer"]
    first.save_pretrained(tmp_path / "second")
    second = processor_without_video(tmp_path / "second").from_pretrained(tmp_path / "second", **SETTINGS)
    assert second.image_processor.to_dict() == first.image_processor.to_dict()
    if family == "smolvlm":
        assert second.image_seq_len == first.image_seq_len == 4
    if family == "llava_onevision":
        assert second.num_image_tokens == first.num_image_tokens == 16


def test_a_published_folder_describes_a_part_for_videos_that_is_passed_over(tmp_path: Path) -> None:
    folder = save_tiny("qwen2_5_vl", tmp_path / "model")
    file = folder / "processor_config.json"
    described = json.loads(file.read_text())
    file.write_text(json.dumps({**described, "video_processor": {"video_processor_type": "Qwen2VLVideoProcessor"}}))
    assert processor_without_video(folder).from_pretrained(folder, **SETTINGS).image_processor.patch_size == 8


def test_it_is_for_those_alone_who_need_it(tmp_path: Path) -> None:
    """A family without videos keeps the common way; what a folder says of itself goes before its family."""
    assert processor_without_video(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}))
    assert processor_without_video(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    assert issubclass(processor_without_video(tmp_path), Qwen2_5_VLProcessor)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"processor_class": "LlavaProcessor"}))
    assert processor_without_video(tmp_path) is None
    (tmp_path / "preprocessor_config.json").write_text("[1]")
    assert processor_without_video(tmp_path) is not None


def test_other_parts_stay() -> None:
    assert without_video(LlavaProcessor).get_attributes() == LlavaProcessor.get_attributes()
    assert without_video(LlavaProcessor).__name__ == "LlavaProcessor"
