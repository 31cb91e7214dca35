"""Reports of MIMIC-CXR: where they may lie, and what a damaged zip file says."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.data.sources import mimic_cxr
from cxrlab.data.sources.mimic_cxr import NOT_UTF8, find_reports

MEMBER = "p10/p10990001/s50990001.txt"


def packed(path: Path, before: str = "files/") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{before}README", "not a report")
        archive.writestr(f"{before}{MEMBER}", " FINDINGS: A phantom. " * 20)
        archive.writestr(f"{before}p10/p10990001/s50990002.txt", b"Caf\xe9")
    return path


@pytest.mark.parametrize("before", ["files/", "", "mimic-cxr-reports/files/"])
def test_members_are_found_whatever_stands_before_them(tmp_path: Path, before: str) -> None:
    reports = find_reports(tmp_path, packed(tmp_path / "any.zip", before))
    reported = reports.read("p10990001", "s50990001")
    assert reported is not None and reported.text.startswith(" FINDINGS: A phantom.") and reported.remark is None
    assert reports.read("p10990001", "s50990009") is None
    odd = reports.read("p10990001", "s50990002")
    assert odd is not None and (odd.text, odd.remark) == ("Café", NOT_UTF8)


@pytest.mark.parametrize("tree", ["files", ".", "mimic-cxr-reports", "mimic-cxr-reports/files"])
def test_a_tree_of_reports_may_begin_at_several_places(tmp_path: Path, tree: str) -> None:
    file = tmp_path / tree / MEMBER
    file.parent.mkdir(parents=True)
    file.write_text("A phantom.")
    for reports in (find_reports(tmp_path, None), find_reports(tmp_path / "images", tmp_path)):
        reported = reports.read("p10990001", "s50990001")
        assert reported is not None and reported.text == "A phantom."


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("declared", [None, 100])
def test_a_report_that_unpacks_to_gigabytes_takes_no_memory(tmp_path: Path, method: int, declared: int | None) -> None:
    """64 MiB here; the size that the archive declares is not believed, and other methods unpack all in one call."""
    place = tmp_path / "bomb.zip"
    with zipfile.ZipFile(place, "w", method) as archive:
        archive.writestr(f"files/{MEMBER}", bytes(64 << 20))
    if declared is not None:
        data = bytearray(place.read_bytes())
        for signature, size in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
            at = data.index(signature) + size
            data[at : at + 4] = declared.to_bytes(4, "little")
        place.write_bytes(data)
    reports = find_reports(tmp_path, place)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"bomb\.zip .*s50990001\.txt"):
            reports.read("p10990001", "s50990001")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20


def test_a_report_outside_an_archive_is_bounded_too(tmp_path: Path) -> None:
    """The file is 5 MiB of nothing; an empty one is a report that is not there."""
    file = tmp_path / "files" / MEMBER
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    assert find_reports(tmp_path, None).read("p10990001", "s50990001") is None
    os.truncate(file, 5 << 20)
    with pytest.raises(DataError, match=r"s50990001\.txt is larger than"):
        find_reports(tmp_path, None).read("p10990001", "s50990001")


def test_a_tree_of_reports_alone_goes_before_the_tree_of_images(tmp_path: Path) -> None:
    (tmp_path / "files/p10").mkdir(parents=True)
    file = tmp_path / "mimic-cxr-reports/files" / MEMBER
    file.parent.mkdir(parents=True)
    file.write_text("A phantom.")
    assert find_reports(tmp_path, None).read("p10990001", "s50990001") is not None


def test_a_root_without_reports_gives_none(tmp_path: Path) -> None:
    """Whoever has no reports yet may import the images; each study then has its remark."""
    assert find_reports(tmp_path, None).read("p10990001", "s50990001") is None


def test_a_place_that_was_named_must_hold_reports(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere does not exist"):
        find_reports(tmp_path, tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds neither mimic-cxr-reports.zip nor folders p10"):
        find_reports(tmp_path, tmp_path)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    with pytest.raises(DataError, match="holds no report"):
        find_reports(tmp_path, tmp_path / "other.zip")


def test_a_folder_where_a_report_should_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "files" / MEMBER).mkdir(parents=True)
    with pytest.raises(DataError, match=r"s50990001\.txt.*is a folder, not a file"):
        find_reports(tmp_path, None).read("p10990001", "s50990001")


def test_a_locked_zip_file_is_a_sentence(tmp_path: Path) -> None:
    """The first bit of a member's flags says that it is encrypted; it stands in both of its headers."""
    data = bytearray(packed(tmp_path / "open.zip").read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(signature, at + 1)) >= 0:
            data[at + flags] |= 1
    (tmp_path / "locked.zip").write_bytes(data)
    with pytest.raises(DataError, match="is locked or packed in an unusual way"):
        find_reports(tmp_path, tmp_path / "locked.zip").read("p10990001", "s50990001")


def test_another_process_opens_the_zip_file_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By fork it inherits the list of members, otherwise nothing; both read the same text."""
    reports = find_reports(tmp_path, packed(tmp_path / "any.zip"))
    first = reports.read("p10990001", "s50990001")
    before = mimic_cxr._archives[reports.place][0].fp
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert reports.read("p10990001", "s50990001") == first
    assert mimic_cxr._archives[reports.place][0].fp is not before
    mimic_cxr._archives.clear()
    assert reports.read("p10990001", "s50990001") == first


def test_a_damaged_zip_file_is_a_sentence_without_text_of_a_report(tmp_path: Path) -> None:
    whole = packed(tmp_path / "whole.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a whole zip file"):
        find_reports(tmp_path, tmp_path / "cut.zip")
    at = whole.index(MEMBER.encode()) + len(MEMBER) + 4
    (tmp_path / "bent.zip").write_bytes(whole[:at] + b"\xff\xff\xff" + whole[at + 3 :])
    reports = find_reports(tmp_path, tmp_path / "bent.zip")
    with pytest.raises(DataError, match=r"is damaged at files/p10") as reported:
        reports.read("p10990001", "s50990001")
    assert "phantom" not in str(reported.value)
