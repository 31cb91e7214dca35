"""Picture pools: folders and CIFAR files, read lazily; nothing in a file is ever run."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.data.sources.cifar100 import cifar_pool, load_plain_pickle
from cxrlab.data.sources.image_folder import folder_pool

RNG = np.random.default_rng(0)


def write(path: Path, value: object, protocol: int = 2) -> None:
    path.write_bytes(pickle.dumps(value, protocol))


def batch(count: int, labels: bytes) -> dict[bytes, object]:
    return {
        b"filenames": [f"pic_{n}.png".encode() for n in range(count)],
        b"batch_label": b"a batch",
        labels: [n % 3 for n in range(count)],
        b"data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8),
    }


@pytest.fixture(params=[2, 4])
def hundred(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """CIFAR-100's layout; its own files use pickle protocol 2."""
    names = {b"fine_label_names": [b"apple", b"bear", b"cloud"], b"coarse_label_names": [b"all"]}
    write(tmp_path / "meta", names, request.param)
    write(tmp_path / "train", batch(5, b"fine_labels"), request.param)
    write(tmp_path / "test", batch(2, b"fine_labels"), request.param)
    return tmp_path


def test_cifar_100(hundred: Path) -> None:
    """3072 bytes are three planes of 32 rows: red of the top left pixel is byte 0, its green byte 1024."""
    pictures = list(cifar_pool(hundred, "train"))
    raw = load_plain_pickle(hundred / "train")[b"data"]
    assert [p.label for p in pictures] == ["apple", "bear", "cloud", "apple", "bear"]
    assert pictures[0].name == "pic_0.png" and pictures[0].image.shape == (32, 32, 3)
    for picture, row in zip(pictures, raw, strict=True):
        assert picture.image.dtype == np.uint8
        assert picture.image[0, 0].tolist() == [row[0], row[1024], row[2048]]
        assert picture.image[1, 2].tolist() == [row[34], row[1024 + 34], row[2048 + 34]]
    assert len(list(cifar_pool(hundred, "test"))) == 2


def test_cifar_10(tmp_path: Path) -> None:
    """Several batches in order, and another key for the labels."""
    write(tmp_path / "batches.meta", {b"label_names": [b"a", b"b", b"c"]})
    for number in (1, 2):
        write(tmp_path / f"data_batch_{number}", batch(3, b"labels"))
    write(tmp_path / "test_batch", batch(1, b"labels"))
    assert len(list(cifar_pool(tmp_path, "train"))) == 6 and len(list(cifar_pool(tmp_path, "test"))) == 1


def test_files_written_by_an_old_numpy(tmp_path: Path) -> None:
    """The published files name numpy.core, which newer releases call numpy._core."""
    data = pickle.dumps({b"data": np.arange(4, dtype=np.uint8)}, 2)
    (tmp_path / "old").write_bytes(data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert load_plain_pickle(tmp_path / "old")[b"data"].tolist() == [0, 1, 2, 3]


def test_batches_are_read_when_reached(hundred: Path) -> None:
    """A pool may be larger than memory."""
    pool = cifar_pool(hundred, "train")
    assert isinstance(pool, Iterator)
    assert next(pool).label == "apple"


class Harmful:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.target),))


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_with_a_program_in_it_is_refused_unrun(tmp_path: Path, protocol: int) -> None:
    """The program would make a folder; plain pickle.load makes it, ours does not."""
    write(tmp_path / "bad", {b"data": Harmful(tmp_path / "trace")}, protocol)
    with pytest.raises(DataError, match="refused"):
        load_plain_pickle(tmp_path / "bad")
    assert not (tmp_path / "trace").exists()
    pickle.loads((tmp_path / "bad").read_bytes())
    assert (tmp_path / "trace").exists()


def test_no_other_codec_and_no_object_arrays_smuggle_a_program(tmp_path: Path) -> None:
    """_codecs.encode is needed for bytes of protocol 2 and could load any codec by name."""
    (tmp_path / "bad").write_bytes(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf_8tR.")
    with pytest.raises(DataError, match="codec utf_8"):
        load_plain_pickle(tmp_path / "bad")
    write(tmp_path / "nested", {b"data": np.array([Harmful(tmp_path / "trace")], dtype=object)})
    with pytest.raises(DataError, match="refused"):
        load_plain_pickle(tmp_path / "nested")
    assert not (tmp_path / "trace").exists()


def test_damaged_cifar_files_are_named(hundred: Path, tmp_path: Path) -> None:
    """Cut at several places, empty, text, a folder, another dictionary, another shape, numbers that do not match."""
    whole = (hundred / "train").read_bytes()
    broken = [whole[:cut] for cut in (0, 1, 20, len(whole) // 2, len(whole) - 1)]
    for data in [*broken, b"hello world", pickle.dumps([1], 2)]:
        (hundred / "train").write_bytes(data)
        with pytest.raises(DataError, match="train"):
            list(cifar_pool(hundred, "train"))
    good = batch(2, b"fine_labels")
    shapes = ({b"data": np.zeros((2, 5), np.uint8)}, {b"data": [1, 2]})
    labels = ([0], [0, 9], ["0", "1"], [0.0, 1.0], [None, 0], [True, 0], 3, None)
    files = (7, [1, 2], [None, b"a"])
    for change in (*shapes, *({b"fine_labels": one} for one in labels), *({b"filenames": one} for one in files)):
        write(hundred / "train", {**good, **change})
        with pytest.raises(DataError, match="train"):
            list(cifar_pool(hundred, "train"))
    write(hundred / "train", {b"data": good[b"data"]})
    with pytest.raises(DataError, match="no 'fine_labels'"):
        list(cifar_pool(hundred, "train"))


@pytest.mark.parametrize("names", [5, [1, 2, 3], b"abc", [None]])
def test_class_names_that_are_no_texts_are_named(hundred: Path, names: object) -> None:
    """A number would fail later, far from its cause."""
    write(hundred / "meta", {b"fine_label_names": names})
    with pytest.raises(DataError, match="meta: 'fine_label_names' must be a list of texts"):
        cifar_pool(hundred, "train")


def test_a_wrong_cifar_folder_or_split(hundred: Path, tmp_path: Path) -> None:
    """Said before anything is read."""
    with pytest.raises(ConfigError, match="train or test"):
        cifar_pool(hundred, "val")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="neither 'meta' nor"):
        cifar_pool(empty)
    write(empty / "batches.meta", {b"label_names": []})
    with pytest.raises(DataError, match="no data_batch"):
        cifar_pool(empty)


def test_a_folder_tree(tmp_path: Path) -> None:
    """Order by path, class by folder, other files passed over, a grey picture in three channels."""
    for folder, name in (("cat", "b.png"), ("cat", "a.JPG"), ("dog", "c.jpeg")):
        (tmp_path / folder).mkdir(exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (6, 9), dtype=np.uint8)).save(tmp_path / folder / name)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "cat" / "._b.png").write_bytes(b"a left-over of another system")
    pool = folder_pool(tmp_path)
    assert len(pool) == 3
    pictures = list(pool)
    assert [(p.name, p.label) for p in pictures] == [("cat/a.JPG", "cat"), ("cat/b.png", "cat"), ("dog/c.jpeg", "dog")]
    assert pictures[1].image.shape == (6, 9, 3) and pictures[1].image.dtype == np.uint8 and pool.unreadable == {}


def test_unreadable_pictures_are_counted_and_passed_over(tmp_path: Path) -> None:
    """Never replaced by a blank; the reason is kept."""
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "c.png").write_text("text")
    pool = folder_pool(tmp_path)
    assert [p.name for p in pool] == ["a.png"] and set(pool.unreadable) == {"b.png", "c.png"}
    assert "empty" in pool.unreadable["b.png"]


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    """Empty, or a file."""
    with pytest.raises(DataError, match="no picture"):
        folder_pool(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        folder_pool(tmp_path / "none")


@pytest.mark.real_data
def test_real_pictures() -> None:
    """1,500 CIFAR-10 pictures in ten classes, all readable."""
    root = os.environ.get("CXRLAB_REAL_DATA")
    if not root or not (Path(root) / "natural_images").is_dir():
        pytest.skip("CXRLAB_REAL_DATA does not name a folder with natural_images/")
    pool = folder_pool(Path(root) / "natural_images")
    pictures = list(pool)
    assert len(pictures) == 1500 and len({p.label for p in pictures}) == 10 and not pool.unreadable
    assert {p.image.shape for p in pictures} == {(32, 32, 3)}
