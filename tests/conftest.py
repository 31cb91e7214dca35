"""Markers whose need is absent on this machine are skipped with the reason."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
from functools import cache
from pathlib import Path

import pytest

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
