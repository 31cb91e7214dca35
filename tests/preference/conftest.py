"""A small phantom corpus, and a toy corpus whose references are all one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpora import toy_corpus

from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom


@pytest.fixture(scope="session")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 40 studies, 32 pixels, without masks; only for reading."""
    config = PhantomConfig(n=40, size=32, seed=7, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture
def toy(tmp_path: Path) -> Corpus:
    """Studies s0 … s8, of the splits train, val, test in turn; each has a small left effusion, in words and exactly."""
    return toy_corpus(tmp_path / "toy", 9)
