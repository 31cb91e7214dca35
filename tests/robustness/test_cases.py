"""The studies of an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import toy_corpus

from cxrlab.core.errors import DataError
from cxrlab.core.records import Report
from cxrlab.robustness.audited_studies import Cases
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.robustness.sweep import group_by_shape, image_tensor

NO_TEXT: dict[str, object] = {"sections": Report(indication="Cough.")}
HEALTHY: dict[str, object] = {"findings": (), "labels": {"Pleural Effusion": 0}, "masks": {}}


def cases(folder: Path, ids: list[str], changes: dict[int, dict[str, object]], **settings: Any) -> Cases:
    corpus = toy_corpus(folder, 6, changes)
    return Cases(corpus, ids, RobustnessConfig(model="stub:normal", data=folder, **settings))


def test_text_truth_and_labels_are_gathered(tmp_path: Path) -> None:
    found = cases(tmp_path / "c", ["s4", "s1"], {1: {**NO_TEXT, **HEALTHY}}, batch_size=1)
    assert found.kind == "observations" and [label.name for label in found.labels] == ["pleural effusion"]
    one, two = found.all
    assert (one.id, one.patient, one.indication) == ("s4", "p4", None) and one.truth["pleural effusion"] == 1
    assert one.reference == "There is a small left pleural effusion."
    assert (two.indication, two.reference, two.truth["pleural effusion"]) == ("Cough.", None, 0)
    assert [[case.id for case in batch] for batch in found.batches()] == [["s4"], ["s1"]] and len(found) == 2
    assert [case.id for case in found.load(["s0"])] == ["s0"] and found.load(["s0"])[0].truth["pleural effusion"] == 1


def test_images_and_masks_have_one_size(tmp_path: Path) -> None:
    """A mask of 8 × 9 pixels; at half the size 4 × 5 pixels hold some of it, and at most the ring around them."""
    for number, size in enumerate((None, 12)):
        found = cases(tmp_path / str(number), ["s0", "s1"], {1: HEALTHY}, image_size=size)
        image, masks = found.image(found.all[0]), found.finding_masks(found.all[0])
        assert image.dtype == np.float32 and image.shape == (size or 24, size or 24)
        assert [mask.shape for mask in masks] == [image.shape]
        inside = masks[0] != 0
        assert inside.sum() == 72 if size is None else inside[2:6, 3:8].all() and inside.sum() <= 6 * 7
        assert found.finding_masks(found.all[1]) == []


def test_a_image_becomes_a_tensor_of_its_channels() -> None:
    grey, colour = np.zeros((3, 5), np.float64), np.zeros((3, 5, 3), np.float32)
    assert image_tensor(grey).shape == (1, 3, 5) and image_tensor(colour).shape == (3, 3, 5)
    assert image_tensor(grey).dtype == torch.float32
    assert group_by_shape([grey, colour, grey]) == [[0, 2], [1]]


def test_studies_without_a_report_are_refused_before_the_first_image(tmp_path: Path) -> None:
    cases(tmp_path / "b", ["s0"], {}, only_labels=("pleural effusion",)).check_references()
    with pytest.raises(DataError, match=r"1 of 2 studies have no text in their section 'findings' .*'s1'.*against own"):
        cases(tmp_path / "c", ["s0", "s1"], {1: {**NO_TEXT, **HEALTHY}}).check_references()
