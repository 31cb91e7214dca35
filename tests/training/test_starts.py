"""Which names a training may start from."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_llava

from cxrlab.core.errors import ConfigError
from cxrlab.models.model_registry import KINDS
from cxrlab.models.random_init import TINY
from cxrlab.training.report_model import load_start, start_model_name

WEIGHTS = ("hf", "builtin")


@pytest.mark.parametrize(
    "name",
    [*(f"{kind}:x" for kind in KINDS if kind not in WEIGHTS), "http://host:8000/v1", "scripted:x", "nowhere/a:b"],
)
def test_a_model_without_weights_is_no_start(name: str) -> None:
    """Also an address, a model of text, and a folder with a colon that is not there."""
    said = (
        f"'{name}' cannot be a start: give a run folder, hf:FOLDER or builtin:NAME; models without weights cannot be "
        "trained."
    )
    with pytest.raises(ConfigError) as error:
        load_start(name, None, None, 0)
    assert str(error.value) == said
    with pytest.raises(ConfigError, match="cannot be a start"):
        start_model_name(name)


def test_the_name_of_a_start_elsewhere(tmp_path: Path) -> None:
    """Names of weights stay as they are; a folder with a colon in its name is a folder."""
    assert [start_model_name(name) for name in ("hf:some/folder", "builtin:reporter")] == [
        "hf:some/folder",
        "builtin:reporter",
    ]
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "config.json").write_text("{}")
    assert start_model_name(str(tmp_path / "a:b")) == f"hf:{tmp_path / 'a:b'}"


STATUS = Path("/proc/self/status")
# Prints, for each way to open a start, the precisions of its stored weights and the most bytes that memory grew by.
MEASURE = """
import ctypes, gc, json, sys, threading
from cxrlab.training.report_model import load_start

def taken():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if "RssAnon" in line)

for start, parts, precision in json.loads(sys.argv[1]):
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide what is taken
    before, peak, stop = taken(), [0], threading.Event()
    def watch():
        while not stop.wait(0.002):
            peak[0] = max(peak[0], taken() - before)
    watcher = threading.Thread(target=watch)
    watcher.start()
    model = load_start(start, *parts, 0, precision).model
    stop.set()
    watcher.join()
    names = {str(value.dtype) for name, value in model.named_parameters() if start or "projector" not in name}
    print(json.dumps([sorted(names), max(peak[0], taken() - before)]), flush=True)
    del model
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not STATUS.is_file() or "RssAnon" not in STATUS.read_text() or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="needs Linux with glibc",
)
def test_a_start_has_the_precision_of_its_files_and_no_copy_in_float32(tmp_path: Path) -> None:
    """Every process of a training opens the start: in float32 eight of them would take 224 GB for seven billion weights."""
    model, processor = tiny_llava(size=dataclasses.replace(TINY, width=512, head=64, language=16, vision_encoder=4))
    model.to(torch.bfloat16)
    model.config.dtype = torch.bfloat16
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    stored, name = (tmp_path / "model.safetensors").stat().st_size, f"hf:{tmp_path}"
    assert stored > 60e6
    ways = [
        (name, (None, None), "bfloat16"),
        (None, (name, name), "bfloat16"),
        (name, (None, None), "float32"),
    ]
    words = [sys.executable, "-c", MEASURE, json.dumps(ways)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    whole, parts, control = (json.loads(line) for line in run.stdout.splitlines())
    assert whole[0] == parts[0] == ["torch.bfloat16"] and control[0] == ["torch.float32"]
    # Opened from parts, the folder is read once for each of the two.
    assert whole[1] < 1.5 * stored and parts[1] < 2.5 * stored
    assert control[1] > 1.9 * stored  # the copy would be seen
