from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from corpora import image, toy_corpus
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError, UnknownName
from cxrlab.core.image_codec import encode_png
from cxrlab.data.synthetic_scenes import draw_scene
from cxrlab.extraction import query_pools
from cxrlab.extraction.query_pools import POOLS, USAGE, Pool, open_pool, square


def keys(pool: Pool, n: int, skip: int = 0) -> list[str]:
    return [picture.key for picture in pool.draw(n, skip)]


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """CIFAR-100's layout: ten pictures, number k evenly grey k."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"apple"]}, 2))
    train = {
        b"filenames": [f"pic_{n}.png".encode() for n in range(10)],
        b"fine_labels": [0] * 10,
        b"data": np.repeat(np.arange(10, dtype=np.uint8)[:, None], 3072, axis=1),
    }
    (folder / "train").write_bytes(pickle.dumps(train, 2))
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six pictures of 8 × 8, number k evenly grey 10 k, and one that is damaged."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for k in range(6):
        (folder / f"{k}.png").write_bytes(encode_png(np.full((8, 8), 10 * k, np.uint8)))
    (folder / "damaged.png").write_bytes(b"no picture")
    return folder


@pytest.mark.parametrize("name", ["scenes", "noise", "cifar", "folder", "corpus", "mix"])
def test_every_pool_keeps_colours_where_they_are_wanted(name: str, cifar: Path, photos: Path, tmp_path: Path) -> None:
    """In grey an image has the luminance of the one in colour; a grey file has three equal channels."""
    toy_corpus(tmp_path / "toy", count=18)
    full = {"cifar": f"cifar:{cifar}", "folder": f"folder:{photos}", "corpus": f"corpus:{tmp_path / 'toy'}"}
    pool = {**full, "mix": f"mix:0.5:{full['corpus']}+scenes"}.get(name, name)
    rgb, grey = (open_pool(pool, size=16, seed=1, colour=colour).draw(2) for colour in (True, False))
    assert [one.pixels.shape for one in rgb] == [(16, 16, 3)] * 2 and [one.key for one in rgb] == [o.key for o in grey]
    coloured = any(np.ptp(one.pixels, axis=2).any() for one in rgb)
    assert coloured == (name in ("scenes", "noise", "mix"))
    if name != "noise":
        for one, other in zip(rgb, grey, strict=True):
            by_hand = one.pixels @ np.array([0.299, 0.587, 0.114])
            assert np.abs(by_hand - other.pixels).max() <= 1
    assert len({one.sha256 for one in (*rgb, *grey)}) == 4


def test_every_kind_has_its_usage_line() -> None:
    assert [form.partition(":")[0] for form in USAGE] == list(POOLS)


@pytest.mark.parametrize("name", ["scenes", "noise", "cifar", "folder", "corpus", "mix"])
def test_a_longer_draw_begins_with_the_shorter_and_another_seed_with_another(
    name: str, cifar: Path, photos: Path, tmp_path: Path
) -> None:
    toy_corpus(tmp_path / "toy", count=18)  # six of them in train
    full = {
        "cifar": f"cifar:{cifar}",
        "folder": f"folder:{photos}",
        "corpus": f"corpus:{tmp_path / 'toy'}",
        "mix": f"mix:0.5:corpus:{tmp_path / 'toy'}+scenes",
    }.get(name, name)
    pool = open_pool(full, size=16, seed=1)
    ten = pool.draw(6)
    for picture in ten:
        assert picture.pixels.shape == (16, 16) and picture.pixels.dtype == np.uint8
    assert len({picture.key for picture in ten}) == 6
    again = open_pool(full, size=16, seed=1)
    for part in (again.draw(2, skip=4), again.draw(4), again.draw(3, skip=1)):
        for picture in part:
            twin = next(one for one in ten if one.key == picture.key)
            assert np.array_equal(picture.pixels, twin.pixels)
    assert keys(again, 4) == [picture.key for picture in ten[:4]]
    assert keys(again, 2, skip=4) == [picture.key for picture in ten[4:]]
    other = open_pool(full, size=16, seed=2).draw(6)
    assert any(not np.array_equal(a.pixels, b.pixels) for a, b in zip(ten, other, strict=True))


def test_cifar_is_passed_once_a_draw_and_only_what_is_drawn_is_decoded(
    cifar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = open_pool(f"cifar:{cifar}", size=4, seed=3)
    assert len(pool) == 10
    passes, decoded = [], []
    real = query_pools.cifar_pool
    monkeypatch.setattr(query_pools, "cifar_pool", lambda *a: passes.append(a) or real(*a))
    monkeypatch.setattr(query_pools, "square", lambda *a: decoded.append(1) or square(*a))
    drawn = pool.draw(4)
    assert len(passes) == 1 and not decoded
    # Evenly grey k stays k whatever the size, and k is the number in the key.
    assert all((one.pixels == int(one.key[:5])).all() for one in drawn)
    with pytest.raises(DataError, match="holds 10 images, but 11"):
        pool.draw(5, skip=6)


def test_colour_is_luminance_and_shapes_are_squeezed() -> None:
    """Pure red is 0.299 of white: 76.245 of 255; an image half black and half white stays so when it is squeezed."""
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    assert (square(red, 8) == 76).all()
    wide = np.zeros((4, 16), np.uint8)
    wide[:, 8:] = 255
    small = square(wide, 4)
    assert (small[:, 0] == 0).all() and (small[:, 3] == 255).all()
    assert square(np.array([[0, 255]], np.uint8), 4)[0].tolist() == [0, 64, 191, 255]  # a quarter, three quarters


def test_a_damaged_file_is_passed_over_and_named_when_pictures_run_out(photos: Path) -> None:
    pool = open_pool(f"folder:{photos}", size=8, seed=5)
    six = pool.draw(6)
    assert sorted(int(one.pixels[0, 0]) for one in six) == [0, 10, 20, 30, 40, 50]
    assert all(one.in_domain is None for one in six) and len(pool) == 7
    with pytest.raises(DataError, match=r"holds 7 images, 1 of them unreadable, but 7 .*damaged\.png"):
        pool.draw(1, skip=6)
    fresh = open_pool(f"folder:{photos}", size=8, seed=5)
    assert keys(fresh, 2, skip=3) == [one.key for one in six[3:5]]  # also where the damaged one is among the skipped


def test_noise_covers_the_whole_range_and_is_normal_between() -> None:
    """Each picture goes from 0 to 255; about 68 % of its pixels lie within one deviation of the mean."""
    for picture in open_pool("noise", size=64, seed=1).draw(3):
        pixels = picture.pixels.astype(float)
        assert (pixels.min(), pixels.max()) == (0, 255) and picture.in_domain is False
        assert np.mean(np.abs(pixels - pixels.mean()) < pixels.std()) == pytest.approx(0.683, abs=0.03)


def test_scenes_are_not_those_of_a_corpus_with_the_same_seed() -> None:
    pool = open_pool("scenes", size=24, seed=7)
    picture = pool.draw(1)[0]
    assert not np.array_equal(picture.pixels, square(draw_scene(7, 0, 24).image, 24))
    assert pool.count is None and pool
    with pytest.raises(TypeError, match="unlimited"):
        len(pool)


def test_images_of_a_split_and_a_split_without_any(tmp_path: Path) -> None:
    corpus = toy_corpus(tmp_path / "toy", count=5)
    pool = open_pool(f"corpus:{corpus.path}@test", size=24, seed=1)
    (one,) = pool.draw(1)
    assert (one.key, one.in_domain) == ("s2", True) and np.array_equal(one.pixels, image(2))
    assert sorted(keys(open_pool(f"corpus:{corpus.path}", size=24, seed=1), 2)) == ["s0", "s3"]
    only = toy_corpus(tmp_path / "one", count=1)
    with pytest.raises(DataError, match="no study in its val split"):
        open_pool(f"corpus:{only.path}@val", size=24, seed=1)


def test_a_mixture_keeps_its_share_in_every_prefix(tmp_path: Path, photos: Path) -> None:
    corpus = toy_corpus(tmp_path / "toy", count=9)  # three images in train
    pool = open_pool(f"mix:0.3:corpus:{corpus.path}+scenes", size=8, seed=1)
    drawn = pool.draw(10)
    for n in range(11):
        assert sum(bool(one.in_domain) for one in drawn[:n]) == n * 3 // 10
    assert [one.key for one in pool.draw(4, skip=5)] == [one.key for one in drawn[5:9]]
    # The fourth image would be due at picture 14, where 4.2 is reached first: 13 pictures can be drawn.
    assert pool.count == 13 and len(pool.draw(13)) == 13
    with pytest.raises(DataError, match="holds 13 images, but 14"):
        pool.draw(14)
    exact = open_pool("mix:0.29:noise+scenes", size=4, seed=1)
    assert sum(one.key.startswith("in/") for one in exact.draw(100)) == 29  # 0.29 · 100 is 28.999… among floats
    drawn = open_pool(f"mix:0.5:folder:{photos}+scenes", size=4, seed=1).draw(4)
    assert [one.in_domain for one in drawn] == [False, True, False, True]


def test_a_mixture_tells_what_cannot_be_read_in_its_parts(photos: Path) -> None:
    """Six of seven photographs at a share of 0.3: a seventh is due at picture 24, where 7.2 is reached first."""
    pool = open_pool(f"mix:0.3:folder:{photos}+scenes", size=8, seed=5)
    assert pool.unreadable == {} and pool.readable == pool.count == 26  # nothing has been read yet
    with pytest.raises(DataError, match="1 of them unreadable"):
        pool.draw(26)
    assert list(pool.unreadable) == ["in/damaged.png"] and "damaged.png" in pool.unreadable["in/damaged.png"]
    assert pool.readable == 23 == len(pool.draw(23))


def test_ends_of_the_share(photos: Path) -> None:
    assert keys(open_pool("mix:0:noise+scenes", size=4, seed=1), 2) == ["out/scene000000", "out/scene000001"]
    assert keys(open_pool("mix:1:noise+scenes", size=4, seed=1), 1) == ["in/noise000000"]
    assert open_pool(f"mix:0:folder:{photos}+scenes", size=4, seed=1).count is None
    assert open_pool(f"mix:0.5:scenes+folder:{photos}", size=4, seed=1).count == 14


@every_row(
    ("name", "error", "words"),
    [
        ("scene", UnknownName, "Did you mean 'scenes'"),
        ("scenes:x", ConfigError, "write it as scenes"),
        ("cifar", ConfigError, r"write it as cifar:DIR\[@split\]"),
        ("mix:2:noise+scenes", ConfigError, "R from 0 to 1"),
        ("mix:half:noise+scenes", ConfigError, "R from 0 to 1"),
        ("mix:0.5:noise", ConfigError, "does not name two pools"),
        ("mix:0.5:noise+noise", ConfigError, "with itself"),
        ("folder:/nowhere/at/all", DataError, "is not a folder"),
        ("corpus:/nowhere/at/all", DataError, "does not exist"),
    ],
)
def test_what_is_no_pool_is_refused_at_once(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_pool(name, size=8, seed=1)
