"""Files of others: opened without running anything, and every name accounted for."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from cxrlab.core.errors import DataError
from cxrlab.models.convert import check_loaded, read_tensors, renamed, without


class Trap:
    """Would make a folder when unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.folder),)


def test_a_pickle_with_a_program_in_it_is_not_opened(tmp_path: Path) -> None:
    """Neither run nor opened in part; the message says why."""
    torch.save({"weight": torch.ones(2), "extra": Trap(tmp_path / "sprung")}, tmp_path / "model.bin")
    with pytest.raises(DataError, match="contains pickled code"):
        read_tensors(tmp_path / "model.bin")
    assert not (tmp_path / "sprung").exists()
    torch.load(tmp_path / "model.bin", weights_only=False)  # the trap is real: opened carelessly it springs
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_both_forms_of_torch_files_open(tmp_path: Path, zipped: bool) -> None:
    torch.save({"a": torch.arange(3)}, tmp_path / "model.bin", _use_new_zipfile_serialization=zipped)
    assert torch.equal(read_tensors(tmp_path / "model.bin")["a"], torch.arange(3))


def test_numbers_of_numpy_beside_the_state_are_harmless(tmp_path: Path) -> None:
    """Training scripts leave their best loss in a checkpoint; `module.` goes when every name has it."""
    whole = {"state_dict": {"module.a": torch.ones(1)}, "loss": np.float32(1.5), "epoch": np.int64(3)}
    torch.save(whole, tmp_path / "model.pt")
    assert list(read_tensors(tmp_path / "model.pt")) == ["a"]


def test_a_torch_file_that_was_packed_is_refused(tmp_path: Path) -> None:
    """A megabyte of it may unpack to gigabytes; torch itself packs nothing."""
    torch.save({"a": torch.zeros(2)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as whole, zipfile.ZipFile(tmp_path / "b.pt", "w", 8) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    with pytest.raises(DataError, match=r"b\.pt holds .* compressed"):
        read_tensors(tmp_path / "b.pt")


def test_safetensors_open(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    assert read_tensors(tmp_path / "model.safetensors")["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("model.bin", b"<html>not found</html>", "damaged or no file of torch"),
        ("model.bin", b"", "damaged or no file of torch"),
        ("model.safetensors", b"\x00" * 40, "damaged"),
        ("model.bin", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_other_files_are_told_apart(tmp_path: Path, name: str, content: bytes, named: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=named):
        read_tensors(tmp_path / name)


def test_a_file_without_weights_and_a_missing_one(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "model.bin")
    with pytest.raises(DataError, match="holds no weights"):
        read_tensors(tmp_path / "model.bin")
    with pytest.raises(DataError, match="does not exist"):
        read_tensors(tmp_path / "other.bin")


def test_several_new_names_share_a_tensor() -> None:
    """Six rows for three names: two each, in their order."""
    placed = renamed({"qkv": torch.arange(6)}, {"qkv": ("q", "k", "v")}, "here")
    assert {name: part.tolist() for name, part in placed.items()} == {"q": [0, 1], "k": [2, 3], "v": [4, 5]}


def test_names_that_do_not_fit_are_counted_and_the_first_told() -> None:
    tensors = {f"extra{k}": torch.ones(1) for k in range(7)}
    with pytest.raises(DataError, match=r"here: 1 tensor missing \(a\); 7 tensors .* \(extra0, .* extra4 …\)"):
        renamed(tensors, {"a": ("b",)}, "here")


def test_tensors_left_out_on_purpose_are_listed_with_the_reason() -> None:
    unused: dict[str, str] = {}
    kept = without({"a.x": torch.ones(1), "b": torch.ones(1)}, {r"a\..+": "not learnt"}, unused)
    assert list(kept) == ["b"] and unused == {"a.x": "not learnt"}


def test_shapes_that_do_not_fit_are_told() -> None:
    reported = {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": {("w", (2, 3), ())}}
    with pytest.raises(DataError, match=r"w \(2×3, not a single number\)"):
        check_loaded(reported, "here")
