from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import save_tiny_llava

from cxrlab.models.hf.model import HfModel


@pytest.fixture(scope="session")
def llava_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA as `save_pretrained` writes it; tests must not write into it."""
    return save_tiny_llava(tmp_path_factory.mktemp("models") / "llava")


@pytest.fixture(scope="session")
def llava(llava_folder: Path) -> HfModel:
    return HfModel.load(str(llava_folder))
