"""Skips tests whose requirements this machine lacks, and fails tests that connect to another host."""

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

os.environ.pop("COLUMNS", None)  # without it, and without a terminal, no table is wrapped
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # TRL, which some tests compare with, sends telemetry

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


@cache
def _reason(marker: str) -> str | None:
    """Why tests with this marker cannot run on this machine; None if they can."""
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
    """Exclude what is imported by now from garbage collection, which every training runs."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def real_data() -> Path:
    """The folder of real data; only for tests marked `real_data`."""
    return Path(os.environ["CXRLAB_REAL_DATA"])


def _is_local(host: object) -> bool:
    """Whether a host is this machine: None, empty, localhost, or a loopback address."""
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(name)).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def no_outside_network() -> Iterator[None]:
    """Fail a test that looks up another host or connects to one, before any data is sent."""
    with pytest.MonkeyPatch.context() as patch:
        _guard(patch, socket, "getaddrinfo", lambda host, *_: host == "0.0.0.0" or _is_local(host))  # to listen there
        _guard(patch, socket, "gethostbyname", lambda host, *_: _is_local(host))
        for name in ("connect", "connect_ex", "sendto"):
            _guard(
                patch,
                socket.socket,
                name,
                lambda connection, *given: connection.family == socket.AF_UNIX or _is_local(given[-1][0]),
            )
        yield


def _guard(patch: pytest.MonkeyPatch, owner: Any, name: str, allowed: Any) -> None:
    """Replace `owner.name` by a function that fails the test unless `allowed` accepts the arguments."""
    original = getattr(owner, name)

    def guarded(*given: Any, **named: Any) -> Any:
        if not allowed(*given, *named.values()):
            pytest.fail(f"a test tried to connect to another host: {name}{given}")
        return original(*given, **named)

    patch.setattr(owner, name, guarded)
