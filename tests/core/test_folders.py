from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import RunError
from cxrlab.core.folders import write_folder


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert write_folder(out, lambda folder: (folder / "a").write_text("1") and None) == out
    assert [file.name for file in out.iterdir()] == ["a"] and [f.name for f in out.parent.iterdir()] == ["out"]


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", lambda folder: (folder / "a").touch())
    with pytest.raises(RunError, match="is there already"):
        write_folder(tmp_path / "out", lambda folder: None)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is there already"):
        write_folder(tmp_path / "file", lambda folder: None)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, ValueError])
def test_nothing_is_left_of_a_writing_that_failed(tmp_path: Path, error: type[BaseException]) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise error()

    with pytest.raises(RunError if error is OSError else error):
        write_folder(tmp_path / "out", fail)
    assert list(tmp_path.iterdir()) == []
