from __future__ import annotations

import os
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.data.config import ImportConfig
from cxrlab.data.source_tables import chosen_layout, image_path, is_image, posix_path, read_dicom_header


def test_a_layout_is_one_of_the_known_or_left_open(tmp_path: Path) -> None:
    assert chosen_layout(ImportConfig(tmp_path), ("png", "dicom")) is None
    assert chosen_layout(ImportConfig(tmp_path, layout="dicom"), ("png", "dicom")) == "dicom"
    with pytest.raises(ConfigError, match=r"Did you mean 'dicom'\? Choose one of png, dicom"):
        chosen_layout(ImportConfig(tmp_path, layout="dicm"), ("png", "dicom"))


def test_a_image_is_taken_from_the_first_place_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "image.png").write_bytes(b"x")
    assert image_path(tmp_path, ["a/image.png", "b/image.png"]) == "b/image.png"
    assert image_path(tmp_path, ["a/none.png", "b/none.png"]) == "a/none.png"


def test_a_path_that_leaves_the_root_is_not_looked_at(tmp_path: Path) -> None:
    """It stays the first choice, so that the engine sees and refuses it."""
    (tmp_path / "image.png").write_bytes(b"x")
    (tmp_path / "root").mkdir()
    assert image_path(tmp_path / "root", ["../image.png"]) == "../image.png"
    assert image_path(tmp_path / "root", [str(tmp_path / "image.png")]) == str(tmp_path / "image.png")


def test_paths_of_other_systems() -> None:
    assert posix_path(r"images\id_1\image.png") == "images/id_1/image.png"
    assert posix_path("./images/image.png") == "images/image.png"
    assert posix_path("images/image.png") == "images/image.png"


@pytest.mark.parametrize(
    "name", ["x" * 5000, "a\0b", "", "..", "/etc/passwd", "../image.png", r"..\image.png", "pipe", "circle"]
)
def test_a_name_that_is_no_image_never_stops_an_import(tmp_path: Path, name: str) -> None:
    """Too long for the system, with a zero byte, outside, no plain file, a link to itself: one bad row of a table."""
    (tmp_path / "image.png").write_bytes(b"x")
    (tmp_path / "root").mkdir()
    os.mkfifo(tmp_path / "root" / "pipe")
    (tmp_path / "root" / "circle").symlink_to("circle")
    assert not is_image(tmp_path / "root", name) and image_path(tmp_path / "root", [name]) == name
    assert read_dicom_header(tmp_path / "root", name) == (None, None)
