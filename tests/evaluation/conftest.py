"""A small phantom corpus, made once for a test session and copied where a test damages it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom


@pytest.fixture(scope="session")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 90 studies, 32 pixels, without masks; only for reading."""
    config = PhantomConfig(n=90, size=32, seed=7, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture
def own_phantom(phantom: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(phantom, tmp_path / "phantom"))
