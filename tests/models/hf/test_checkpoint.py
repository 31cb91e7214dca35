from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_dual_encoder, tiny_llava, tiny_tokenizer

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, OutOfMemory, RunError
from cxrlab.models import local_files
from cxrlab.models.hf import checkpoint
from cxrlab.models.hf.checkpoint import open_checkpoint
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import locate, remote_code_files
from cxrlab.models.random_init import TINY, build_image_processor, build_language_model, build_vision_encoder

OWN_CODE = """
from transformers import LlavaConfig, LlavaForConditionalGeneration

class OwnConfig(LlavaConfig):
    model_type = "own_llava"

class OwnModel(LlavaForConditionalGeneration):
    config_class = OwnConfig
"""


@pytest.fixture
def folder(llava_folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(llava_folder, tmp_path / "llava"))


def rewrite(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_good_folder_opens_in_evaluation_mode(llava_folder: Path) -> None:
    found = open_checkpoint(llava_folder)
    assert not found.model.training and found.folder == llava_folder and found.card is None
    assert found.tokenizer is found.processor.tokenizer
    model, _ = tiny_llava()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, found.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
        (lambda f: rewrite(f / "config.json", model_type="novel"), "cannot be read by transformers"),
        (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]), "cut short"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x10"), "cut short"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 64), "cut short"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\2" + b"\0" * 7 + b"[]"), "cut short"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\7" + b"\0" * 7 + b'{"a":3}'), "cut short"),
        (lambda f: (f / "processor_config.json").unlink(), "processor"),
        (lambda f: [(f / n).unlink() for n in ("tokenizer.json", "tokenizer_config.json")], "tokenizer"),
    ],
)
def test_a_damaged_folder_is_one_sentence(folder: Path, damage: Callable[[Path], object], says: str) -> None:
    damage(folder)
    with pytest.raises(DataError, match=says) as error:
        open_checkpoint(folder)
    assert "\n" not in str(error.value) and str(folder) in str(error.value)


def test_wrong_kinds_are_called_what_they_are(tmp_path: Path) -> None:
    """A language model, a dual encoder and a vision encoder, each with all its files."""
    words, images = tiny_tokenizer(), build_image_processor(TINY.image)
    dual, _, _ = tiny_dual_encoder()
    kinds = {
        "a language model": build_language_model(words, TINY, 0),
        "a dual encoder": dual,
        "a vision encoder": build_vision_encoder(TINY, 0),
    }
    for number, (said, model) in enumerate(kinds.items()):
        folder = tmp_path / str(number)
        for part in (model, words, images):
            part.save_pretrained(folder)
        with pytest.raises(DataError, match=f"holds {said}.*not an image-text-to-text model"):
            open_checkpoint(folder)
    # What stage 1 writes has a type that transformers does not know; that is not the user's version of it.
    rewrite(tmp_path / "1" / "config.json", model_type="projected-dual-encoder")
    with pytest.raises(DataError, match="holds a dual encoder.*cxrlab retrieve"):
        open_checkpoint(tmp_path / "1")


def test_an_encoder_decoder_is_refused(folder: Path) -> None:
    rewrite(folder / "config.json", is_encoder_decoder=True)
    with pytest.raises(DataError, match="encoder-decoder"):
        open_checkpoint(folder)


def test_weights_that_would_be_random_are_refused(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    gone = next(name for name in weights if "projector" in name)
    save_file({k: v for k, v in weights.items() if k != gone}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=r"lacks 1 of the model's tensors .*projector.*random"):
        open_checkpoint(folder)
    save_file({**weights, gone: weights[gone][:1].clone()}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="cannot be loaded"):
        open_checkpoint(folder)


def test_a_run_folder_leads_to_the_checkpoint_in_it(llava_folder: Path, tmp_path: Path) -> None:
    """What a training wrote is named by its run folder everywhere; a model's own folder is never left for another."""
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    with pytest.raises(DataError, match=f"{tmp_path / 'run' / 'checkpoint'} has no config.json"):
        open_checkpoint(tmp_path / "run")
    shutil.copytree(llava_folder, tmp_path / "run" / "checkpoint", dirs_exist_ok=True)
    assert open_checkpoint(tmp_path / "run").folder == tmp_path / "run" / "checkpoint"
    (tmp_path / "run" / "config.json").write_text("{}")
    assert locate(tmp_path / "run", LoadSettings()) == tmp_path / "run"


def test_names_that_lead_nowhere_are_told_without_a_look_at_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked: list[bool] = []

    def offline(name: str, local_files_only: bool) -> str:
        asked.append(local_files_only)
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    (tmp_path / "model").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"does not exist. Did you mean 'model'"):
        locate(tmp_path / "modell", LoadSettings())
    with pytest.raises(DataError, match="is a file; name the folder"):
        locate(tmp_path / "file", LoadSettings())
    assert not asked  # a path is never taken for an id
    with pytest.raises(DataError, match="neither a folder nor among the checkpoints kept.*--loading.download"):
        locate("org/name", LoadSettings())
    with pytest.raises(DataError, match=r"could not be fetched \(no route to host\)"):
        locate("org/name", LoadSettings(download=True))
    assert asked == [True, False]
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, local_files_only: str(tmp_path / "model"))
    assert locate("org/name", LoadSettings()) == tmp_path / "model"


def test_code_of_a_checkpoint_runs_only_when_it_is_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the files; trusted, the class of the folder itself is used."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder.parent / "modules"))
    (folder / "modeling_own.py").write_text(OWN_CODE)
    named = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForImageTextToText": "modeling_own.OwnModel"}
    rewrite(folder / "config.json", model_type="own_llava", auto_map=named)
    with pytest.raises(ConfigError, match=r"would run modeling_own.py on this machine.*trust-remote-code"):
        open_checkpoint(folder)
    found = open_checkpoint(folder, LoadSettings(trust_remote_code=True))
    assert type(found.model).__name__ == "OwnModel"
    rewrite(folder / "config.json", auto_map={"AutoConfig": "modeling_own.OwnConfig"})
    with pytest.raises(DataError, match="names no model class"):
        open_checkpoint(folder, LoadSettings(trust_remote_code=True))


def test_foreign_code_is_that_of_unknown_families_alone(folder: Path) -> None:
    """Where transformers has the family itself, its own code is used and nothing is asked."""
    rewrite(folder / "config.json", auto_map={"AutoConfig": "other/repo--configuration.Config"})
    assert remote_code_files(folder) == []
    rewrite(folder / "config.json", model_type="own")
    rewrite(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokens.Slow", None]})
    assert remote_code_files(folder) == ["other/repo configuration.py", "tokens.py"]


def test_too_little_memory_is_said_with_figures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of n numbers take 4 n bytes in float32 and 2 n in bfloat16."""
    stored = local_files.stored_weights(folder)
    model, _ = tiny_llava()
    count = sum(weight.numel() for weight in model.parameters())  # a tied one counts once, as on disk
    assert stored is not None and stored.parameters == count
    monkeypatch.setattr(checkpoint, "free_bytes", lambda device: 3 * count)
    with pytest.raises(RunError, match=r"million parameters, which take .* GiB in float32.*--loading.dtype bfloat16"):
        open_checkpoint(folder)
    assert open_checkpoint(folder, LoadSettings(dtype="bfloat16")).model.dtype == torch.bfloat16
    monkeypatch.setattr(checkpoint, "free_bytes", lambda device: count)
    with pytest.raises(RunError, match="a machine with more memory"):
        open_checkpoint(folder)
    monkeypatch.setattr(checkpoint, "free_bytes", lambda device: None)
    assert open_checkpoint(folder)


def test_sharded_weights_are_counted_and_a_lost_shard_is_named(tmp_path: Path, llava_folder: Path) -> None:
    model, processor = tiny_llava()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    processor.save_pretrained(tmp_path)
    assert len(local_files.weight_files(tmp_path)) > 1
    assert local_files.stored_weights(tmp_path) == local_files.stored_weights(llava_folder)
    open_checkpoint(tmp_path)
    local_files.weight_files(tmp_path)[1].unlink()
    with pytest.raises(DataError, match=r"lacks 1 of its \d+ weight files"):
        open_checkpoint(tmp_path)


def test_pickled_weights_are_left_to_transformers(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert local_files.stored_weights(tmp_path) is None


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(llava_folder: Path, device: str) -> None:
    with pytest.raises(ConfigError, match="device="):
        open_checkpoint(llava_folder, LoadSettings(device=device))


def test_precision_by_device() -> None:
    """auto: float32 on a processor, the checkpoint's own on a GPU."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert (
        checkpoint.dtype_of(LoadSettings(), cpu) is torch.float32 and checkpoint.dtype_of(LoadSettings(), gpu) == "auto"
    )
    assert checkpoint.dtype_of(LoadSettings(dtype="bfloat16"), cpu) is torch.bfloat16
    assert (
        local_files.Stored(10, 20, 3).in_memory("auto") == 23
        and local_files.Stored(10, 20, 3).in_memory("float32") == 43
    )


def test_free_memory_is_told_and_a_container_may_have_less(tmp_path: Path) -> None:
    free = checkpoint.free_bytes(torch.device("cpu"))
    assert free is not None and 0 < free < 1 << 50
    assert checkpoint.free_bytes(torch.device("meta")) is None
    assert checkpoint._left_in_group(tmp_path) is None
    for name, text in (("memory.max", "1000"), ("memory.current", "700"), ("memory.stat", "anon 9\ninactive_file 50")):
        (tmp_path / name).write_text(text)
    assert checkpoint._left_in_group(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max")
    assert checkpoint._left_in_group(tmp_path) is None


def test_every_reason_is_one_of_the_family() -> None:
    assert issubclass(DataError, CxrlabError) and checkpoint.__all__


@pytest.mark.parametrize(
    "index", [{"weight_map": {"x": 5}}, {"weight_map": ["a"]}, {}, [], {"weight_map": {"x": "../w"}}]
)
def test_an_index_that_names_no_files_beside_it_is_refused(index: object, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path.parent / "w").write_bytes(b"")
    with pytest.raises(DataError, match="does not name weight files"):
        local_files.weight_files(tmp_path)


@pytest.mark.parametrize("stage", ["read", "moved"])
def test_weights_that_memory_cannot_hold_are_not_called_damaged(
    llava_folder: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    import transformers

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 28.00 GiB.")

    if stage == "read":
        monkeypatch.setattr(transformers.AutoModelForImageTextToText, "from_pretrained", full)
    else:
        monkeypatch.setattr(transformers.PreTrainedModel, "to", full)
    with pytest.raises(OutOfMemory, match="GPU memory ran out while .* was loaded"):
        open_checkpoint(str(llava_folder), LoadSettings(device="cpu"))
