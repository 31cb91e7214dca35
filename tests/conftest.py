"""Markers whose need is absent on this machine are skipped with the reason; and no test reaches beyond this machine."""

from __future__ import annotations

import gc
import importlib.util
import ipaddress
import os
import shutil
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # TRL, an oracle of the tests, would tell its maker that it was used

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


@cache
def _reason(marker: str) -> str | None:
    """Why tests with this marker cannot run here; None when they can."""
    if marker == "real_data":
        folder = os.environ.get("CXRLAB_REAL_DATA")
        if not folder:
            return "CXRLAB_REAL_DATA does not name a folder of real data"
        return None if Path(folder).is_dir() else f"CXRLAB_REAL_DATA={folder} is not a folder"
    if marker == "browser":
        return None if any(shutil.which(name) for name in _BROWSERS) else "no Chromium or Firefox on the PATH"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in ("gpu", "real_data", "browser"):
            if item.get_closest_marker(marker) and (reason := _reason(marker)):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """What is imported by now stays: collecting garbage, as every training does, need not go through all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def real_data() -> Path:
    """The folder of real data; only for tests marked `real_data`."""
    return Path(os.environ["CXRLAB_REAL_DATA"])


def _stays_here(host: object) -> bool:
    """Whether a host is this machine: nothing, its name, or a loopback address."""
    told = host.decode() if isinstance(host, bytes) else host
    if told in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(told)).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def nobody_outside() -> Iterator[None]:
    """A look-up of another host, or a connection to one, fails the test before it leaves this machine."""
    with pytest.MonkeyPatch.context() as patch:
        _guard(patch, socket, "getaddrinfo", lambda host, *_: host == "0.0.0.0" or _stays_here(host))  # to listen there
        _guard(patch, socket, "gethostbyname", lambda host, *_: _stays_here(host))
        for name in ("connect", "connect_ex", "sendto"):
            _guard(
                patch,
                socket.socket,
                name,
                lambda one, *given: one.family == socket.AF_UNIX or _stays_here(given[-1][0]),
            )
        yield


def _guard(patch: pytest.MonkeyPatch, place: Any, name: str, allowed: Any) -> None:
    real = getattr(place, name)

    def guarded(*given: Any, **named: Any) -> Any:
        if not allowed(*given, *named.values()):
            pytest.fail(f"a test tried to reach beyond this machine: {name}{given}")
        return real(*given, **named)

    patch.setattr(place, name, guarded)
