from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import save_tiny_llava, tiny_dual_encoder

from cxrlab.models.hf.model import HfModel


@pytest.fixture(scope="session")
def llava_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny LLaVA; tests must not write into it."""
    return save_tiny_llava(tmp_path_factory.mktemp("models") / "llava")


@pytest.fixture(scope="session")
def llava(llava_folder: Path) -> HfModel:
    return HfModel.load(str(llava_folder))


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny contrastive encoder; tests must not write into it."""
    folder = tmp_path_factory.mktemp("models") / "encoder"
    for part in tiny_dual_encoder():
        part.save_pretrained(folder)
    return folder
