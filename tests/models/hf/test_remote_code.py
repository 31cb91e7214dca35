"""A checkpoint that brings its own Python files, as CheXagent does: nothing of it runs until it is trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from tiny_models import save_tiny_llava

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings

MODELING = """
import os
from transformers import LlavaConfig, LlavaForConditionalGeneration

os.environ["RAN_MODELING"] = "yes"


class ReporterConfig(LlavaConfig):
    model_type = "own_reporter"


class ReporterForConditionalGeneration(LlavaForConditionalGeneration):
    config_class = ReporterConfig
"""
PROCESSING = """
import os
from transformers import LlavaProcessor

os.environ["RAN_PROCESSING"] = "yes"


class ReporterProcessor(LlavaProcessor):
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny LLaVA under a name that transformers does not know, with the files that do."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    for name in ("RAN_MODELING", "RAN_PROCESSING"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")
    folder = save_tiny_llava(tmp_path / "reporter")
    (folder / "modeling_reporter.py").write_text(MODELING)
    (folder / "processing_reporter.py").write_text(PROCESSING)
    model = {
        "AutoConfig": "modeling_reporter.ReporterConfig",
        "AutoModelForCausalLM": "modeling_reporter.ReporterForConditionalGeneration",
    }
    edit(folder / "config.json", model_type="own_reporter", auto_map=model)
    words = {"AutoProcessor": "processing_reporter.ReporterProcessor"}
    edit(folder / "processor_config.json", processor_class="ReporterProcessor", auto_map=words)
    return folder


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_untrusted_files_are_named_and_not_run(folder: Path) -> None:
    with pytest.raises(ConfigError) as reported:
        HfModel.load(str(folder))
    assert "modeling_reporter.py, processing_reporter.py" in str(reported.value) and "trust" in str(reported.value)
    assert not os.environ["RAN_MODELING"] and not os.environ["RAN_PROCESSING"]


def test_trusted_it_answers_like_any_other(folder: Path, tmp_path: Path) -> None:
    """The same weights under the family's own name say the same words."""
    own = HfModel.load(str(folder), loading=LoadSettings(trust_remote_code=True))
    assert os.environ["RAN_MODELING"] and type(own.model).__name__ == "ReporterForConditionalGeneration"
    plain = HfModel.load(str(save_tiny_llava(tmp_path / "plain")))
    images = torch.rand(2, 32, 32, generator=torch.Generator().manual_seed(0))
    assert [answer.text for answer in own.generate(images)] == [answer.text for answer in plain.generate(images)]


def test_a_missing_file_is_told(folder: Path) -> None:
    """Half a download: the config names a file that is not there."""
    (folder / "modeling_reporter.py").unlink()
    with pytest.raises(DataError, match=r"config\.json cannot be read|modeling_reporter"):
        HfModel.load(str(folder), loading=LoadSettings(trust_remote_code=True))
