"""Reference log-probabilities: each in its own place, whatever the order, the batches and the mode of the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from preference_runs import single_thread
from tiny_models import tiny_llava

from cxrlab.core.image_codec import encode_png
from cxrlab.preference import dataset
from cxrlab.preference.dataset import PreferenceDataset, reference_log_probabilities
from cxrlab.preference.losses import log_probabilities
from cxrlab.training.image_cache import ImageFile, open_images
from cxrlab.training.report_dataset import ReportDataset, count_image_tokens, tokenise
from cxrlab.training.report_model import ReportLoss, add_adapters

WORDS = ("Clear.", "Small left pleural effusion.", "Moderate cardiomegaly. No edema, no pneumothorax.", "No edema.")
N = 7


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture
def parts(tmp_path: Path) -> tuple[ReportLoss, PreferenceDataset]:
    """A model with adapters that drop half of their inputs in training, and seven twins of unequal length."""
    model, processor = tiny_llava()
    files = []
    for number in range(N):
        path = tmp_path / f"{number}.png"
        path.write_bytes(encode_png(np.random.default_rng(number).integers(0, 256, (32, 32), dtype=np.uint8)))
        files.append(ImageFile(path))
    images = open_images(files, processor.image_processor, tmp_path / "images")
    token = int(model.config.image_token_id)
    reports = [WORDS[(3 * number + twin) % 4] for number in range(N) for twin in range(2)]
    tokens = tokenise(processor, token, ["Findings:"] * len(reports), reports)
    rows = ReportDataset(
        tokens, np.repeat(np.arange(N), 2)[:, None], None, None, count_image_tokens(model), token, 0, 300
    )
    peft = add_adapters(model, 4, 8.0, 0.5, train_projector=False)
    with torch.no_grad():
        for name, value in peft.named_parameters():
            if "lora_B" in name:
                value.fill_(0.05)
    return ReportLoss(model, processor.image_processor), PreferenceDataset(rows, images)


def one_by_one(reporter: ReportLoss, rows: PreferenceDataset) -> np.ndarray[Any, Any]:
    reporter.eval()
    found = []
    for item in range(N):
        batch = rows.__getitems__([item])
        with torch.no_grad():
            found.append(log_probabilities(reporter, batch, copies=2)[0].numpy())
    return np.stack(found)


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_they_are_those_of_each_pair_alone(
    parts: tuple[ReportLoss, PreferenceDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Sorted by length within blocks of four, in batches of any size; a model in training is asked without dropout and
    left in training."""
    reporter, rows = parts
    expected = one_by_one(reporter, rows)
    monkeypatch.setattr(dataset, "_BLOCK", 4)
    reporter.train()
    found = reference_log_probabilities(reporter, rows, tmp_path / "store", precision="float32", batch_size=batch)
    assert found.shape == (N, 2) and np.allclose(found, expected, rtol=1e-5)
    assert reporter.training and len({round(float(value), 3) for value in found.flatten()}) > N


def test_they_are_found_again_for_the_same_weights_alone(
    parts: tuple[ReportLoss, PreferenceDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter, rows = parts
    how: dict[str, Any] = {"folder": tmp_path / "store", "precision": "float32", "batch_size": 4}
    first = reference_log_probabilities(reporter, rows, **how)
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "log_probabilities", lambda *_, **__: pytest.fail("computed again"))
        assert np.array_equal(reference_log_probabilities(reporter, rows, **how), first)
    with torch.no_grad():
        next(value for name, value in reporter.named_parameters() if "lora_B" in name).add_(0.1)
    assert not np.allclose(reference_log_probabilities(reporter, rows, **how), first)
    assert len(list((tmp_path / "store").iterdir())) == 2
