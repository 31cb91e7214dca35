"""`cxrlab models convert` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from published_checkpoints import llava_rad_folder, open_clip_folder, vicuna_folder

from cxrlab.cli.main import main


def test_an_encoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was made and what was not needed, in words."""
    source = open_clip_folder(tmp_path / "in")
    assert main(["models", "convert", "open-clip", str(source), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "ProjectedDualEncoder" in said and "images of 42 px" in said and "1 tensors not needed" in said


def test_a_report_model_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The vision encoder may lie elsewhere; its text encoder is listed as not needed, with the reason."""
    source, base = llava_rad_folder(tmp_path / "in"), vicuna_folder(tmp_path / "vicuna")
    vision_encoder = open_clip_folder(tmp_path / "vision_encoder")
    for path in source.glob("biomedclip*"):
        path.unlink()
    words = [
        "--base",
        str(base),
        "--vision-encoder",
        str(vision_encoder),
        "--keep-adapter",
        "--json",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["models", "convert", "llava-rad", str(source), *words]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["model"] == "LlavaForConditionalGeneration" and reported["image"] == 42
    assert "temperature" in reported["unused"]["logit_scale"]
    assert (tmp_path / "out" / "adapter_config.json").is_file() and (tmp_path / "out" / "base").is_dir()


def test_a_mistake_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "convert", "llava-rad", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "--base" in said and len(said.strip().splitlines()) == 1
