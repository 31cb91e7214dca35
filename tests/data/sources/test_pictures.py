"""Pictures without a chest: any folder, and CIFAR's pickles as PNG files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cxrlab.core.errors import DataError
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import import_corpus


def test_a_folder_of_pictures_keeps_its_names_as_captions(tmp_path: Path) -> None:
    for name in ("dog/a.png", "cat/b.jpg", "c.png", "cat/.hidden.png", "cat/notes.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("txt"):
            (tmp_path / "in" / name).write_text("x")
        else:
            Image.new("RGB", (4, 4), (10, 20, 30)).save(tmp_path / "in" / name)
    corpus = import_corpus("image-folder", ImportConfig(tmp_path / "in"), tmp_path / "c")
    assert {study.id: study.caption for study in corpus} == {"c.png": None, "cat/b.jpg": "cat", "dog/a.png": "dog"}
    assert corpus.rgb(corpus["dog/a.png"]).shape == (4, 4, 3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no picture"):
        import_corpus("image-folder", ImportConfig(tmp_path / "empty"), tmp_path / "d")


def test_cifar_becomes_pictures_with_the_names_of_their_classes(tmp_path: Path) -> None:
    """File names repeat in the pickles, so ids are numbers; pixels are kept exactly."""
    root = tmp_path / "in"
    root.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (3, 3072), dtype=np.uint8)
    (root / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"maple_tree", b"bear"]}, 2))
    for name, rows in (("train", pixels[:2]), ("test", pixels[2:])):
        batch = {b"filenames": [b"same.png"] * len(rows), b"fine_labels": [0] * len(rows), b"data": rows}
        (root / name).write_bytes(pickle.dumps(batch, 2))
    corpus = import_corpus("cifar100", ImportConfig(root), tmp_path / "c")
    assert corpus.ids("train") == ("train00000", "train00001") and corpus.ids("test") == ("test00000",)
    study = corpus["test00000"]
    assert study.caption == "maple tree"
    shown = np.round(corpus.rgb(study) * 255).astype(np.uint8)
    assert (shown == pixels[2].reshape(3, 32, 32).transpose(1, 2, 0)).all()
    with pytest.raises(DataError, match="not an unpacked CIFAR folder"):
        import_corpus("cifar100", ImportConfig(tmp_path), tmp_path / "d")
