"""Where a checkpoint runs, in which precision, and whether it fits: asked before a byte of it is loaded."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import read_json, unreadable
from cxrlab.models.load_settings import LoadSettings

if TYPE_CHECKING:
    import torch

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
_BYTES_OF = {"float32": 4, "bfloat16": 2}
_HEADER_LIMIT = 100_000_000  # of safetensors itself
_GIB = 1 << 30


@dataclass(frozen=True)
class Stored:
    """What the headers of weight files say.

    Args:
        parameters: Numbers in floating tensors.
        bytes: What they take on disk.
        other: Bytes of tensors that are no floating numbers (quantised weights, indices).
    """

    parameters: int
    bytes: int
    other: int = 0

    def in_memory(self, dtype: str) -> int:
        """Bytes once loaded; `auto` keeps the precision of the disk."""
        return self.other + (self.bytes if dtype == "auto" else self.parameters * _BYTES_OF[dtype])


def device_of(loading: LoadSettings) -> torch.device:
    """The device that is asked for; one that this machine does not have is a `ConfigError`."""
    import torch

    if loading.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(loading.device)
    except RuntimeError:
        raise ConfigError(f"device={loading.device!r} is no device; give auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={loading.device!r} is not on this machine, which has {torch.cuda.device_count()} GPUs; "
            "give another one, or auto."
        )
    return device


def dtype_of(loading: LoadSettings, device: torch.device) -> Any:
    """What `from_pretrained` takes as `dtype`: a torch type, or `auto` for the checkpoint's own."""
    import torch

    return getattr(torch, name) if (name := dtype_name(loading, device)) != "auto" else "auto"


def dtype_name(loading: LoadSettings, device: torch.device) -> str:
    """float32, bfloat16 or auto; processors compute half precision slowly, so auto means float32 there."""
    return "float32" if loading.dtype == "auto" and device.type == "cpu" else loading.dtype


def check_memory(folder: Path, loading: LoadSettings, device: torch.device) -> None:
    """A `RunError` with figures when the weights alone exceed what is free; unknown sizes pass."""
    stored, free = stored_weights(folder), free_bytes(device)
    if stored is None or free is None:
        return
    dtype = dtype_name(loading, device)
    needed = stored.in_memory(dtype)
    if needed > free:
        as_what = "as stored" if dtype == "auto" else f"in {dtype}"
        half = stored.in_memory("bfloat16")
        remedy = "use --loading.dtype bfloat16" if half < min(needed, free) else "use a machine with more memory"
        raise RunError(
            f"{folder} has {stored.parameters / 1e6:,.1f} million parameters, which take {needed / _GIB:.2f} GiB "
            f"{as_what}, and {free / _GIB:.2f} GiB are free on {device}; {remedy}."
        )


def stored_weights(folder: Path) -> Stored | None:
    """Sizes by the headers of the safetensors files of a checkpoint; None where it has pickled weights alone.

    Raises:
        DataError: When there are no weights, a part is missing, or a file is cut short.
    """
    files = weight_files(folder)
    if not files:
        return None
    parameters = size = other = 0
    for file in files:
        for kind, numbers, length in _tensors(file):
            if kind in _BYTES:
                parameters, size = parameters + numbers, size + length
            else:
                other += length
    return Stored(parameters, size, other)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint; empty where it has pickled weights alone."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        names = _indexed(folder / INDEX)
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise DataError(
                f"{folder} lacks {len(missing)} of its {len(names)} weight files ({missing[0]}); "
                "copy or fetch them again."
            )
        if names:
            return [folder / name for name in names]
    if any((folder / name).is_file() for name in _PICKLED):
        return []
    raise DataError(f"{folder} has no weights; it needs {WEIGHTS}, or {INDEX} with the files it names.")


def _indexed(index: Path) -> list[str]:
    """The files that an index names, all of them beside it: one that leads elsewhere was not made by a publisher."""
    found = read_json(index)
    places = found.get("weight_map") if isinstance(found, dict) else None
    names = {name if isinstance(name, str) else "" for name in places.values()} if isinstance(places, dict) else {""}
    if any(Path(name).name != name or not name for name in names):
        raise DataError(f"{index} does not name weight files that lie beside it; copy or fetch it again.")
    return sorted(names)


def check_safetensors(file: Path) -> None:
    """A `DataError` when a safetensors file does not hold all that its header lists."""
    for _ in _tensors(file):
        pass


def _tensors(file: Path) -> Iterator[tuple[str, int, int]]:
    """(type, numbers, bytes) of each tensor, after a check that the file holds them all."""
    try:
        with file.open("rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            header: Any = json.loads(stream.read(length)) if length <= _HEADER_LIMIT else None
            size = file.stat().st_size
        header.pop("__metadata__", None)
        found = [(str(t["dtype"]), math.prod(t["shape"]), *t["data_offsets"]) for t in header.values()]
        whole = max((end for *_, end in found), default=0) + 8 + length == size
    except OSError as error:
        raise unreadable(error, file) from error
    except (ValueError, TypeError, KeyError, AttributeError, struct.error):  # bytes that are no header
        whole, found = False, []
    if not whole:
        raise DataError(f"{file} is cut short or damaged; copy or fetch it again.")
    for kind, numbers, start, end in found:
        yield kind, numbers, end - start


def free_bytes(device: torch.device) -> int | None:
    """Memory that a new model may take on a device; None where the system does not tell."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = [size for size in (_available(), _left_in_group()) if size is not None]
    return min(found, default=None)


def _available() -> int | None:
    """What the kernel calls available; where it does not tell (not Linux), all there is: a looser check."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _left_in_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container may still take; None outside of one."""
    for most, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit = int((root / most).read_text())
            taken = int((root / used).read_text())
            lines = (root / used).with_name("memory.stat").read_text().splitlines()
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
        # Files that are only kept in memory in case they are read again make room when asked.
        spare = next((int(line.split()[1]) for line in lines if line.startswith(f"{cache} ")), 0)
        return max(limit - taken + spare, 0)
    return None
