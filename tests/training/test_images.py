"""Images as the vision encoder takes them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cxrlab.core import atomic_folders
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.data.images import load_image
from cxrlab.models.random_init import build_image_processor
from cxrlab.training import image_cache
from cxrlab.training.image_cache import ArrayStore, ImageFile, distinct, images_key, open_images, prepared, shape
from cxrlab.training.image_features import to_pixels

SIDE = 32


def image(folder: Path, number: int, shape: tuple[int, ...] = (48, 40)) -> ImageFile:
    path = folder / f"{number}.png"
    path.write_bytes(encode_png(np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)))
    return ImageFile(path, rgb=len(shape) == 3)


@pytest.fixture
def processor() -> object:
    return build_image_processor(SIDE)


def test_stored_and_fresh_images_have_the_same_bytes(tmp_path: Path, processor: object) -> None:
    files = [image(tmp_path, number) for number in range(5)]
    kept = open_images(files, processor, tmp_path / "cache", cache="on")
    fresh = open_images(files, processor, tmp_path / "cache", cache="off")
    assert kept.store is not None and fresh.store is None and len(kept) == 5
    assert kept[[4, 0, 4]].shape == (3, SIDE, SIDE)
    assert (kept[[4, 0, 4]] == fresh[[4, 0, 4]]).all()


def test_pixels_are_those_of_the_image_processor(processor: object) -> None:
    """Scaling and normalising after 8-bit storage equals the processor's own output, grey and in colour."""
    for size in ((50, 70), (50, 70, 3)):
        picture = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
        three = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
        expected = processor(images=three, return_tensors="pt", input_data_format="channels_last")["pixel_values"]  # type: ignore[operator]
        small = shape(picture, processor)
        given = to_pixels(torch.from_numpy(small if picture.ndim == 3 else small[..., 0].copy())[None], processor)
        assert torch.allclose(given, expected, atol=1e-5)


def test_colour_is_kept_where_any_image_has_it(tmp_path: Path, processor: object) -> None:
    files = [image(tmp_path, 0), image(tmp_path, 1, (40, 40, 3))]
    for cache in ("on", "off"):
        pair = open_images(files, processor, tmp_path / "cache", cache=cache)[[0, 1]]
        assert pair.shape == (2, SIDE, SIDE, 3)
        assert (pair[0, ..., 0] == pair[0, ..., 1]).all() and (pair[1, ..., 0] != pair[1, ..., 1]).any()


def test_another_image_size_or_order_is_another_store(tmp_path: Path, processor: object) -> None:
    files = [image(tmp_path, number) for number in range(3)]
    keys = {
        images_key(files, processor),
        images_key(files[::-1], processor),
        images_key(files, build_image_processor(64)),
    }
    keys.add(images_key(files[:2], processor))
    image(tmp_path, 0, (48, 41))
    os.utime(files[0].path, ns=(1, 1))
    keys.add(images_key(files, processor))
    assert len(keys) == 5


def test_a_missing_image_is_told_before_any_is_decoded(tmp_path: Path, processor: object) -> None:
    files = [image(tmp_path, 0), ImageFile(tmp_path / "lost.png"), ImageFile(tmp_path / "gone.png")]
    with pytest.raises(DataError, match=r"2 of 3 images are not on disk \(for example .*lost.png"):
        open_images(files, processor, tmp_path / "cache")


def test_unreadable_images_are_counted_and_never_replaced(tmp_path: Path, processor: object) -> None:
    files = [image(tmp_path, number) for number in range(4)]
    for number in (1, 3):
        files[number].path.write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"2 of 4 images cannot be read \(for example: .*1.png"):
        open_images(files, processor, tmp_path / "cache", cache="on")
    with pytest.raises(DataError, match="1.png"):
        open_images(files, processor, tmp_path / "cache", cache="off")[[0, 1]]


def test_auto_stops_at_its_limit(tmp_path: Path, processor: object) -> None:
    """Three images of 32 × 32 are 3,072 bytes."""
    files = [image(tmp_path, number) for number in range(3)]
    assert open_images(files, processor, tmp_path / "c", most_gb=3072e-9).store is not None
    assert open_images(files, processor, tmp_path / "d", most_gb=3071e-9).store is None


def test_a_processor_without_one_size_is_refused(tmp_path: Path) -> None:
    from transformers import CLIPImageProcessorPil

    free = CLIPImageProcessorPil(size={"shortest_edge": 32}, do_center_crop=False)
    with pytest.raises(ConfigError, match="a vision encoder needs one size"):
        open_images([image(tmp_path, 0)], free, tmp_path / "cache")


def test_a_store_that_was_cut_off_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows noted as done are not asked for again; what came after the last note is."""
    monkeypatch.setattr(image_cache, "_CHUNK", 4 * 8 * 2)  # a note every second row
    store = ArrayStore(tmp_path / "s", (6, 8), np.float32)
    asked: list[int] = []

    def rows(start: int, until: int = 6) -> object:
        for number in range(start, until):
            asked.append(number)
            yield np.full((1, 8), number, np.float32)
        if until < 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.fill(lambda start: rows(start, 5))  # type: ignore[arg-type, return-value]
    assert store.done == 4
    store.fill(rows)  # type: ignore[arg-type]
    assert asked == [0, 1, 2, 3, 4, 4, 5]
    assert (store.read()[:, 0] == np.arange(6)).all()
    store.fill(lambda start: pytest.fail("a whole store asks for nothing"))
    assert ArrayStore(tmp_path / "s", (7, 8), np.float32).done == 0


def test_a_disk_that_is_too_small_is_told_at_once(tmp_path: Path) -> None:
    store = ArrayStore(tmp_path / "s", (10**12, 1000), np.float32)
    with pytest.raises(RunError, match=r"needs 4000000.0 GB and the disk has .* GB left"):
        store.fill(lambda start: pytest.fail("nothing must be computed"))


def test_a_disk_that_has_no_room_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free room may be counted and not be ours (quota): it is reserved before the first row, never in the middle."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match="the disk has .* GB left; choose another folder"):
        ArrayStore(tmp_path / "s", (2, 1), np.float32).fill(lambda start: pytest.fail("nothing must be computed"))
    assert not (tmp_path / "s" / "rows.bin").exists()


def test_the_room_of_a_store_is_reserved_before_the_first_row(tmp_path: Path) -> None:
    """A map of a file with holes ends the process without a word when the disk fills up."""
    store = ArrayStore(tmp_path / "s", (4, 1 << 16), np.float32)
    held: list[int] = []

    def rows(start: int) -> Iterator[np.ndarray]:
        held.append((store.folder / "rows.bin").stat().st_blocks * 512)
        yield np.ones((4, 1 << 16), np.float32)

    store.fill(rows)
    assert held[0] >= store.bytes and store.done == 4


def test_two_runs_that_share_a_cache_fill_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first and then finds everything there."""
    monkeypatch.setattr(atomic_folders, "LOCK_TIMEOUT_S", 0.01)
    store = ArrayStore(tmp_path / "s", (3, 2), np.float32)
    begun, goes_on = threading.Event(), threading.Event()

    def slow(start: int) -> Iterator[np.ndarray]:
        begun.set()
        goes_on.wait(20)
        yield np.full((3, 2), 7, np.float32)

    first = threading.Thread(target=store.fill, args=(slow,))
    first.start()
    begun.wait(20)
    threading.Timer(0.2, goes_on.set).start()
    store.fill(lambda start: pytest.fail("the first has computed it"))
    first.join()
    assert (store.read() == 7).all()


def test_eight_bits_of_grey_are_taken_as_they_are(tmp_path: Path) -> None:
    """The short way for plain images gives what the long way over floats gives, at the vision encoder's size or not."""
    for side, number in ((SIDE, 0), (48, 1)):
        one = image(tmp_path, number, (side, side))
        processor = build_image_processor(SIDE)
        long = shape(to_uint8(load_image(one.path)), processor)[..., 0]
        assert np.array_equal(prepared(one, processor, colour=False), long)


def test_too_few_rows_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 rows were given for a store of 2"):
        ArrayStore(tmp_path / "s", (2, 1), np.float32).fill(lambda start: iter([np.zeros((1, 1), np.float32)]))


def test_a_image_with_two_texts_is_one_image() -> None:
    a, b = ImageFile(Path("a")), ImageFile(Path("b"))
    files, numbers = distinct([a, b, a, ImageFile(Path("a"), rgb=True)])
    assert files[:2] == [a, b] and len(files) == 3 and numbers.tolist() == [0, 1, 0, 2]
