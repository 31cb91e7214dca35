"""Pieces of work in several processes: each after those that it needs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.studies.side_by_side import side_by_side

NEEDS = {"roof": ("left", "right"), "left": ("floor",), "right": ("floor",), "floor": ()}


@pytest.fixture(autouse=True)
def found_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def lay(folder: Path, piece: str) -> None:
    """Write a file; what the piece stands on must be there."""
    for below in NEEDS[piece]:
        assert (folder / below).is_file()
    (folder / piece).write_text(piece)


def break_left(folder: Path, piece: str) -> None:
    if piece == "left":
        raise DataError("it fell.")
    lay(folder, piece)


def test_a_piece_comes_after_those_that_it_needs(tmp_path: Path) -> None:
    side_by_side(partial(lay, tmp_path), NEEDS, 2)
    assert {path.name for path in tmp_path.iterdir()} == set(NEEDS)


def test_nothing_is_built_on_a_piece_that_failed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^the left: it fell\.$"):
        side_by_side(partial(break_left, tmp_path), NEEDS, 1, "the {}".format)
    assert not (tmp_path / "roof").exists()


def test_a_piece_that_waits_for_nobody_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="roof waits for something that nobody makes"):
        side_by_side(partial(lay, tmp_path), {"roof": ("cellar",)}, 1)
