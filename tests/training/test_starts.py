"""Which names a training may start from."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Most bytes by which the memory of this process grew, without mapped files; known when the block ends."""

    def taken() -> int:
        return next(int(line.split()[1]) * 1024 for line in STATUS.read_text().splitlines() if "RssAnon" in line)

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that was freed but kept would hide what is taken
    before, found, stop = taken(), [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            found[0] = max(found[0], taken() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
        found[0] = max(found[0], taken() - before)
    finally:
        stop.set()
        watcher.join()


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
    stored = (tmp_path / "model.safetensors").stat().st_size
    assert stored > 60e6
    name = f"hf:{tmp_path}"
    for start, parts in ((name, (None, None)), (None, (name, name))):
        with peak_memory() as taken:
            opened = load_start(start, *parts, 0)
        projector = {*opened.model.model.multi_modal_projector.parameters()} if start is None else set()
        assert {value.dtype for value in opened.model.parameters() if value not in projector} == {torch.bfloat16}
        # Opened from parts, the folder is read once for each of the two.
        assert taken[0] < (1.5 if start else 2.5) * stored, (start, taken[0] / stored)
        del opened
    with peak_memory() as taken:  # what the test would see
        whole = load_start(name, None, None, 0).model.float()
    assert taken[0] > 1.9 * stored and whole.dtype == torch.float32
