from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import save_tiny_llava, tiny_llava

from cxrlab.cli.main import main
from cxrlab.core.errors import DataError, RunError
from cxrlab.models.hf.adapters import MergeConfig, merge
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import ModelCard, read_model_card, write_model_card

REPORTS = ["No effusion.", "The lungs are clear. The heart is normal in size."]
IMAGES = torch.rand(2, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model

    home = tmp_path_factory.mktemp("merge")
    save_tiny_llava(home / "base")
    model, _ = tiny_llava()
    config = LoraConfig(
        r=4,
        lora_alpha=16,
        target_modules=r"model\.language_model\..*_proj",
        modules_to_save=["multi_modal_projector"],
        init_lora_weights=False,
    )
    torch.manual_seed(3)
    peft = get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in peft.named_parameters():
            if "modules_to_save" in name:
                weight.mul_(1.5)
    peft.save_pretrained(str(home / "adapter"))
    write_model_card(ModelCard("finetune", "plain/1", ("phantom",), "hf:../base", extra={"seed": 3}), home / "adapter")
    return home / "adapter"


def test_the_merged_model_is_the_base_with_its_adapter(adapter: Path, tmp_path: Path) -> None:
    """Log-probabilities within float rounding; nothing of the base or PEFT is needed any more."""
    done = merge(adapter, tmp_path / "merged")
    before, after = HfModel.load(str(adapter)), HfModel.load(str(tmp_path / "merged"))
    assert not any("lora" in name for name, _ in after.model.named_parameters())
    ours, theirs = (m.log_probabilities(IMAGES, REPORTS, ["pain", None]).values for m in (before, after))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    base = HfModel.load(str(adapter.parent / "base"), loading=LoadSettings(prompts="plain/1"))
    assert float((base.log_probabilities(IMAGES, REPORTS, ["pain", None]).values - theirs).abs().max()) > 1e-2
    assert after.prompts.name == "plain/1" and done.parameters == sum(p.numel() for p in after.model.parameters())
    card = read_model_card(tmp_path / "merged")
    assert card == ModelCard("finetune", "plain/1", ("phantom",), None, extra={"seed": 3, "merged_onto": "hf:../base"})


def test_precision_is_the_bases_own_or_the_one_asked_for(adapter: Path, tmp_path: Path) -> None:
    assert merge(adapter, tmp_path / "a").dtype == "float32"
    done = merge(adapter, tmp_path / "b", MergeConfig(LoadSettings(dtype="bfloat16")))
    assert done.dtype == "bfloat16" and json.loads((tmp_path / "b" / "config.json").read_text())["dtype"] == "bfloat16"
    # Of a base in bfloat16, merged with nothing asked for: the sum is made in float32 and kept in bfloat16.
    HfModel.load(str(adapter.parent / "base"), loading=LoadSettings(dtype="bfloat16")).model.save_pretrained(
        tmp_path / "half"
    )
    tiny_llava()[1].save_pretrained(tmp_path / "half")
    assert merge(adapter, tmp_path / "c", MergeConfig(LoadSettings(base=str(tmp_path / "half")))).dtype == "bfloat16"


def test_only_adapters_are_merged_and_nothing_is_written_over(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to merge"):
        merge(adapter.parent / "base", tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RunError, match="is there already"):
        merge(adapter, tmp_path / "full")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["full"]


def test_the_command(adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["models", "merge", str(adapter), "--out", str(tmp_path / "merged")]
    assert main([*words, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["folder"] == str(tmp_path / "merged") and reported["dtype"] == "float32"
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "is there already" in error and "Traceback" not in error


def test_its_help_needs_no_torch() -> None:
    import subprocess

    code = "import sys, cxrlab.cli.models, cxrlab.models.hf.model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
