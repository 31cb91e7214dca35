"""A checkpoint counts when it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import RunError
from cxrlab.training.run_folder import MARKER, latest, mark_complete, remove_incomplete, remove_old, resumable, step_of


def checkpoint(folder: Path, step: int, *, whole: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_text("w")
    if whole:
        mark_complete(path)
    return path


def test_a_half_written_checkpoint_is_ignored_and_removed(tmp_path: Path) -> None:
    checkpoint(tmp_path, 90)
    checkpoint(tmp_path, 100, whole=False)
    found = latest(tmp_path)
    assert found is not None and step_of(found) == 90
    remove_incomplete(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-90"]


def test_the_two_latest_are_kept_by_number_not_by_name(tmp_path: Path) -> None:
    """checkpoint-1000 sorts before checkpoint-200 as text."""
    for step in (200, 1000, 30):
        checkpoint(tmp_path, step)
    remove_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1000", "checkpoint-200"]


def test_no_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path / "steps") is None and resumable(tmp_path / "steps") is None


def test_a_damaged_checkpoint_is_refused_with_what_can_be_done(tmp_path: Path) -> None:
    """Never the one before without a word: whether to go back is for the user to decide."""
    checkpoint(tmp_path, 8)
    newest = checkpoint(tmp_path, 12)
    assert resumable(tmp_path) == newest
    (newest / "weights").write_text("x")
    with pytest.raises(RunError, match=r"checkpoint-12 is damaged: .*weights.* remove .* resume from checkpoint-8"):
        resumable(tmp_path)
    remove_old(tmp_path, kept=1)
    with pytest.raises(RunError, match=r"checkpoint-12 is damaged: .*weights.* remove .* start anew from step 0"):
        resumable(tmp_path)


def test_a_marker_without_checksums_is_taken_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Version 0.1.0 wrote these words into it; other words are damage."""
    found = checkpoint(tmp_path, 8)
    (found / MARKER).write_text("every file of this checkpoint is on disk\n")
    assert resumable(tmp_path) == found
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(found) in said and "not verified" in said
    (found / MARKER).write_text("every file of this checkpoint is on dusk\n")
    with pytest.raises(RunError, match=MARKER):
        resumable(tmp_path)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-old").mkdir()
    remove_incomplete(tmp_path)
    assert (tmp_path / "checkpoint-old").is_dir() and not (tmp_path / MARKER).exists()
    with pytest.raises(ValueError, match="not a checkpoint"):
        step_of(tmp_path)
