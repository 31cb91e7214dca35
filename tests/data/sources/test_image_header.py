"""Headers of images: only their beginning is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from dicom_images import write_image

from cxrlab.data.source_tables import AGE_OUT_OF_RANGE, HEADER_UNREADABLE, read_dicom_header


@pytest.mark.parametrize(
    ("cell", "age", "remark"),
    [("061Y", 61, None), ("006M", 0.5, None), ("999Y", None, AGE_OUT_OF_RANGE), ("", None, None)],
)
def test_ages_of_headers(tmp_path: Path, cell: str, age: float | None, remark: str | None) -> None:
    write_image(tmp_path / "image", PatientAge=cell, PatientSex="M")
    header, reported = read_dicom_header(tmp_path, "image")
    assert header is not None and (header.age, header.sex, reported) == (age, "M", remark)
    assert not isinstance(header.age, float) or header.age != int(header.age), "whole years are whole numbers"


def test_a_image_larger_than_what_is_read_is_no_damaged_one(tmp_path: Path) -> None:
    """A megapixel is four times the part that is read; its header stands in front."""
    write_image(tmp_path / "image", 1024, 1024, PatientSex="F")
    header, reported = read_dicom_header(tmp_path, "image")
    assert header is not None and (header.rows, header.columns, header.sex, reported) == (1024, 1024, "F", None)


def test_an_absent_image_another_format_and_a_cut_header(tmp_path: Path) -> None:
    assert read_dicom_header(tmp_path, "none") == (None, None)
    assert read_dicom_header(tmp_path, ".") == (None, None)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert read_dicom_header(tmp_path, "image.png") == (None, None)
    (tmp_path / "torn").write_bytes(b"\0" * 128 + b"DICM" + b"\xff" * 40)
    assert read_dicom_header(tmp_path, "torn") == (None, HEADER_UNREADABLE)
