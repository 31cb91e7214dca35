"""From what a user names to a local folder, and what that folder would do to this machine.

Nothing is fetched unless it was asked for, and no program that comes with a checkpoint is run
unless it was trusted in so many words.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, nearest
from cxrlab.core.files import read_json
from cxrlab.core.folders import CHECKSUMS, find_damage
from cxrlab.core.streams import Remarks
from cxrlab.models.loading import Loading
from cxrlab.models.local_files import first_line
from cxrlab.models.model_card import MODEL_CARD

ADAPTER_CONFIG = "adapter_config.json"
RESULT = "checkpoint"  # what a training leaves in its run folder
_MODELS = ("config.json", ADAPTER_CONFIG)
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONFIGS = ("config.json", "processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def locate(path_or_id: str | Path, loading: Loading, *, may_fetch: bool = True) -> Path:
    """The local folder of a checkpoint: the folder itself, or the copy of a hub id that this machine keeps.

    A folder with checksums is verified.

    Args:
        path_or_id: A folder, the run folder of a training, which stands for the checkpoint in it, or an id such as
            `org/name`.
        loading: `download` allows an id to be fetched.
        may_fetch: Whether the command that is run has a flag for that.
    """
    folder = Path(path_or_id).expanduser()
    if folder.is_dir():
        found = _result_of(folder)
        refuse_damaged(found)
        return found
    if folder.exists():
        raise DataError(f"{folder} is a file; name the folder that holds config.json and the weights.")
    name = str(path_or_id)
    if not _ID.fullmatch(name) or ".." in name:
        raise DataError(f"{folder} does not exist.{_neighbours(folder)}")
    return _snapshot(name, loading, may_fetch)


def _result_of(folder: Path) -> Path:
    inner = folder / RESULT
    return inner if inner.is_dir() and not any((folder / name).is_file() for name in _MODELS) else folder


def refuse_damaged(folder: Path) -> None:
    """Raise when a model folder that cxrlab wrote is not as it was written; once for the same files in a process.

    A folder from elsewhere has no checksums and is taken as it is; one of cxrlab 0.1.0 has none either, which is
    reported.
    """
    if (folder / CHECKSUMS).is_file():
        stats = {str(path): path.stat() for path in sorted(folder.rglob("*")) if path.is_file()}
        _verify(folder, tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in stats.items()))
    elif (folder / MODEL_CARD).is_file():
        _report_unverified(folder)


@cache
def _report_unverified(folder: Path) -> None:
    Remarks(sys.stderr).write(f"{folder} was not verified: it has no {CHECKSUMS} (cxrlab 0.1.0 wrote none)\n")


@cache
def _verify(folder: Path, files: tuple[tuple[str, int, int, int], ...]) -> None:
    if damage := find_damage(folder):
        raise DataError(
            f"{folder} is damaged: {damage}; copy or make the folder again, or remove {folder / CHECKSUMS} if you "
            "changed it on purpose."
        )


def _snapshot(name: str, loading: Loading, may_fetch: bool) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=not loading.download))
    except Exception as error:  # of the client: its own errors, those of its HTTP library and of the disk
        if loading.download:
            raise DataError(
                f"'{name}' could not be fetched ({first_line(error)}); check the name and the network."
            ) from error
        raise DataError(
            f"'{name}' is neither a folder nor among the checkpoints kept on this machine;{_neighbours(Path(name))} "
            f"give a folder{', or --loading.download to fetch it' if may_fetch else '; this command fetches nothing'}."
        ) from error


def _neighbours(folder: Path) -> str:
    parent = folder.parent
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
    return nearest(folder.name, names)


def refuse_foreign_code(folder: Path, loading: Loading) -> None:
    """A `ConfigError` when the checkpoint only works by running its own Python files and that was not allowed."""
    if loading.trust_remote_code:
        return
    files = foreign_code(folder)
    if files:
        raise ConfigError(
            f"{folder} is no model of transformers alone: it would run {', '.join(files)} on this machine with your "
            "rights; read them, and give --loading.trust-remote-code if you trust them."
        )


def foreign_code(folder: Path) -> list[str]:
    """Python files that a checkpoint brings and cannot do without; empty for a family that transformers knows."""
    from transformers import CONFIG_MAPPING

    maps = [auto_map(folder, name) for name in _CONFIGS]
    config = _json(folder / "config.json")
    if config.get("model_type") in CONFIG_MAPPING:
        return []  # transformers' own code is used
    named = {str(item) for entries in maps for item in _flat(entries)}
    # 'org/other--modeling.Class' lies in another repository, 'modeling.Class' in this folder.
    return sorted({f"{ref.rpartition('--')[0]} {_module(ref)}".strip() for ref in named})


def auto_map(folder: Path, name: str = "config.json") -> dict[str, Any]:
    """Which classes of its own a config file asks for, by auto class."""
    found = _json(folder / name).get("auto_map")
    return found if isinstance(found, dict) else {}


def _flat(entries: dict[str, Any]) -> list[Any]:
    return [item for value in entries.values() for item in (value if isinstance(value, list) else [value]) if item]


def _module(reference: str) -> str:
    return f"{reference.rpartition('--')[2].rpartition('.')[0]}.py"


def _json(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}
