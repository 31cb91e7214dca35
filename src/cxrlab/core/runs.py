"""Run folders: settings, environment, evidence and conclusions of a run, readable without the program.

    config.yaml        the resolved config
    environment.json   versions, command line, commit, seed
    status.json        running, finished or interrupted
    *.jsonl            evidence, one record per line, appended during the run
    *.json             conclusions

An interrupted run is continued when it is opened with the same config; a finished run, or one with another config, is
refused.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import yaml

from cxrlab.core.atomic_folders import LOCK, Lock, lock_folder
from cxrlab.core.config import flatten, read_yaml, to_yaml
from cxrlab.core.environment import environment
from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder, read_json, utf8, write_bytes, write_json, write_pieces, write_text
from cxrlab.core.jsonl import JsonlAppender, read_jsonl

CONFIG, ENVIRONMENT, STATUS = "config.yaml", "environment.json", "status.json"
_MAX_DIFFERENCES = 4  # in a message
_OWN = (CONFIG, ENVIRONMENT, STATUS, LOCK)


class Run:
    """One run folder, open for writing; make it with `Run.open` and use it in a `with` block."""

    def __init__(self, folder: Path, lock: Lock | None, *, resumed: bool) -> None:
        self.folder = folder
        self.resumed = resumed
        self._lock = lock
        self._files: dict[str, JsonlAppender] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        config: Any,
        *,
        seed: int | None = None,
        resume: bool = True,
        operational: Iterable[str] = (),
    ) -> Run:
        """Make the folder, or continue the interrupted run in it.

        A `RunError` is raised when the folder holds a finished run, a run with another config, a run that another process
        is writing, or files that are not a run.

        Args:
            config: A config dataclass or mapping of plain values.
            seed: Recorded; must be the same on resume.
            resume: Whether an interrupted run may be continued.
            operational: Dotted config keys that may differ on resume because they do not change the result (`workers`).
        """
        folder = make_folder(path)
        lock = lock_folder(folder)
        try:
            resumed = _may_continue(folder, config, seed, resume, frozenset(operational))
            run = cls(folder, lock, resumed=resumed)
            run._describe(config, seed)
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def opened_elsewhere(cls, path: Path) -> Run:
        """The folder of a run that another process has open: whole files can be written, nothing is appended."""
        return cls(path, None, resumed=True)

    @property
    def appends(self) -> bool:
        """Whether records can be appended here: not after `close`, nor where another process has the run open."""
        return self._lock is not None and self._lock.held

    def append(self, name: str, record: Any) -> None:
        """Append one record to a `.jsonl` file; it is in the file when this returns."""
        self._appender(name).append(record)

    def write(self, name: str, value: Any) -> Path:
        """Write a whole file atomically: bytes and text as they are, an iterator of texts one by one, else as JSON."""
        target = self.path(name)
        if isinstance(value, Iterator):
            return write_pieces(target, (utf8(text, target) for text in value))
        if isinstance(value, bytes):
            return write_bytes(target, value)
        if isinstance(value, str) and target.suffix != ".json":
            return write_text(target, value)
        return write_json(target, value)

    def done(self, name: str, key: str = "id") -> set[str]:
        """The ids already in a `.jsonl` file, for skipping them on resume; an incomplete last line is removed first."""
        self._appender(name)
        return {str(record[key]) for _, record in read_jsonl(self.path(name)) if key in record}

    def path(self, name: str) -> Path:
        """The place of a file of this run; a name that leads out of the folder is refused."""
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise RunError(
                f"'{name}' is not a name inside the run folder {self.folder}; give a relative name without '..'."
            )
        if name in _OWN:
            raise RunError(f"'{name}' is written by the run itself; choose another name.")
        return self.folder / name

    def close(self, state: str = "finished", reason: str | None = None) -> None:
        """Close every file and record how the run ended; closing twice is allowed."""
        if self._lock is None or not self._lock.held:
            return
        try:
            with contextlib.ExitStack() as files:  # closes every file, also when one of them fails
                for file in self._files.values():
                    files.callback(file.close)
            self._status(state, reason)
        finally:
            self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        # The original error matters more than a status that cannot be written on a full disk.
        with contextlib.suppress(RunError):
            reason = "stopped by Ctrl-C" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
            self.close("interrupted", reason)

    def _appender(self, name: str) -> JsonlAppender:
        if not self.appends:
            raise RunError(f"the run in {self.folder} is closed; open it again to add to it.")
        if name not in self._files:
            if not name.endswith(".jsonl"):
                raise RunError(f"'{name}' cannot be appended to; records go into a file that ends in .jsonl.")
            self._files[name] = JsonlAppender(self.path(name))
        return self._files[name]

    def _describe(self, config: Any, seed: int | None) -> None:
        """Write config, environment and status; on resume the environment is added to the first one."""
        now = environment()
        if self.resumed:
            first = read_json(self.folder / ENVIRONMENT)
            first.setdefault("resumed", []).append(now)
            write_json(self.folder / ENVIRONMENT, first)
        else:
            write_json(self.folder / ENVIRONMENT, {"seed": seed, **now})
            write_text(self.folder / CONFIG, to_yaml(config))  # last: its presence makes the folder a run
        self._status("running")

    def _status(self, state: str, reason: str | None = None) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        write_json(self.folder / STATUS, {"state": state, "at": now, **({"reason": reason} if reason else {})})


def state(path: str | os.PathLike[str]) -> str | None:
    """'running', 'finished' or 'interrupted'; None when the folder holds no run."""
    file = Path(path) / STATUS
    if not file.is_file():
        return None
    found = read_json(file)
    return str(found.get("state")) if isinstance(found, dict) else None


def _may_continue(folder: Path, config: Any, seed: int | None, resume: bool, operational: frozenset[str]) -> bool:
    """False for a new run, True for one to continue; anything else in the folder is a `RunError`."""
    if not (folder / CONFIG).exists():
        foreign = sorted(e.name for e in folder.iterdir() if e.name not in _OWN and not e.name.endswith(".tmp"))
        if foreign:
            raise RunError(
                f"{folder} is not empty and not a run ('{foreign[0]}' is in it); choose a new or empty folder."
            )
        return False
    changed = _differences(folder, config, seed, operational)
    if changed:
        more = f"; and {len(changed) - _MAX_DIFFERENCES} more" if len(changed) > _MAX_DIFFERENCES else ""
        raise RunError(
            f"{folder} holds a run with other settings ({'; '.join(changed[:_MAX_DIFFERENCES])}{more}); "
            f"give the same settings to continue it, or choose another folder with --out."
        )
    if state(folder) == "finished":
        raise RunError(f"{folder} holds a finished run with these settings; use it, or choose another folder.")
    if not resume:
        raise RunError(f"{folder} holds an unfinished run; allow it to resume, or choose another folder.")
    return True


def finished(
    path: str | os.PathLike[str], config: Any, *, seed: int | None = None, operational: Iterable[str] = ()
) -> bool:
    """Whether the folder holds a finished run with these settings; `operational` ones may differ."""
    folder = Path(path)
    return state(folder) == "finished" and not _differences(folder, config, seed, frozenset(operational))


def progress(
    path: str | os.PathLike[str] | None, config: Any, *, seed: int | None = None, operational: Iterable[str] = ()
) -> Literal["new", "begun", "finished"]:
    """How far the run of a folder is, for a plan: nothing is written, and what `Run.open` refuses is refused.

    Except a finished run with these settings; None for the folder stands for a new run.
    """
    if path is None or not Path(path).is_dir():
        return "new"
    if (Path(path) / CONFIG).exists() and finished(path, config, seed=seed, operational=operational):
        return "finished"
    return "begun" if _may_continue(Path(path), config, seed, True, frozenset(operational)) else "new"


def _differences(folder: Path, config: Any, seed: int | None, operational: frozenset[str]) -> list[str]:
    """'key was A and is now B' for every setting and the seed that differ.

    A setting that is null or an empty list was left out.
    """
    old = flatten(read_yaml(folder / CONFIG)[0])
    new = flatten(yaml.safe_load(to_yaml(config)) or {})
    found = read_json(folder / ENVIRONMENT)
    old["the seed"], new["the seed"] = (found.get("seed") if isinstance(found, dict) else None), seed
    return [
        f"{key} was {old.get(key, 'absent')!r} and is now {new.get(key, 'absent')!r}"
        for key in {**old, **new}
        if key not in operational and _given(old.get(key)) != _given(new.get(key))
    ]


def _given(value: Any) -> Any:
    return None if value == [] else value
