"""What is installed: the optional parts of the program, and how to get a missing one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from cxrlab.core.errors import MissingExtra, UnknownName, nearest

# Extra → {importable module: distribution}; the same names as in pyproject.toml, which a test compares.
EXTRAS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "models": {
            "torch": "torch",
            "transformers": "transformers",
            "peft": "peft",
            "accelerate": "accelerate",
            "safetensors": "safetensors",
            "tokenizers": "tokenizers",
        },
        "serve": {
            "fastapi": "fastapi",
            "uvicorn": "uvicorn",
            "starlette": "starlette",
            "pydantic": "pydantic",
            "httpx": "httpx",
            "prometheus_client": "prometheus-client",
        },
    }
)
# From a copy of the source: no package index lists cxrlab.
_INSTALL = 'pip install "{}" (in the folder of cxrlab)'
BASE_INSTALL = _INSTALL.format(".")


@dataclass(frozen=True)
class ExtraStatus:
    """One optional part: what of it is there.

    Args:
        name: Name of the extra.
        versions: Distribution → installed version, None where it is missing.
    """

    name: str
    versions: Mapping[str, str | None]

    @property
    def missing(self) -> tuple[str, ...]:
        """Distributions that are not installed."""
        return tuple(name for name, version in self.versions.items() if version is None)

    @property
    def complete(self) -> bool:
        """Whether the part can be used."""
        return not self.missing

    @property
    def command(self) -> str:
        """The command that installs it."""
        return _INSTALL.format(f".[{self.name}]")


@cache  # milliseconds each, and every run writes down a dozen of them
def version(distribution: str) -> str | None:
    """The installed version of a distribution, None when it is absent; nothing is imported."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def extras() -> tuple[ExtraStatus, ...]:
    """The state of every optional part, without importing any of it."""
    return tuple(_status(name) for name in EXTRAS)


def require(extra: str) -> None:
    """Return when the optional part is installed, else raise a `MissingExtra` with the install command."""
    if extra not in EXTRAS:
        raise UnknownName(f"there is no extra '{extra}'.{nearest(extra, EXTRAS)} Known: {', '.join(EXTRAS)}.")
    status = _status(extra)
    if not status.complete:
        raise MissingExtra(
            f"this needs the '{extra}' part of cxrlab, of which {', '.join(status.missing)} is not installed. "
            f"Install it with: {status.command}"
        )


def explain(error: ModuleNotFoundError) -> MissingExtra | None:
    """The `MissingExtra` for a failed import of an optional package; None when the package is not one of them."""
    top = (error.name or "").partition(".")[0]
    for name, modules in EXTRAS.items():
        if top in modules:
            command = ExtraStatus(name, {}).command
            return MissingExtra(f"this needs '{top}', which is not installed. Install it with: {command}")
    return None


def _status(extra: str) -> ExtraStatus:
    return ExtraStatus(extra, {dist: _version_of(module, dist) for module, dist in EXTRAS[extra].items()})


def _version_of(module: str, distribution: str) -> str | None:
    try:
        present = importlib.util.find_spec(module) is not None
    except ValueError:  # a module that something else put into sys.modules without a spec
        present = True
    return (version(distribution) or "unknown") if present else None
