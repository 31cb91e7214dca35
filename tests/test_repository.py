"""What may lie in the repository: no patient's image, no weights but the built-in ones, nothing large."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 3 << 20
WEIGHTS = Path("src/cxrlab/models/weights")  # the built-in models
MOST_WEIGHTS = 36_000_000  # bytes, all of them together
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".tif", ".tiff", ".bmp", ".webp"}
NEVER = {
    ".dcm",
    ".dicom",
    ".nii",
    ".gz",
    ".tgz",
    ".zip",
    ".pt",
    ".pth",
    ".bin",
    ".safetensors",
    ".ckpt",
    ".npy",
    ".npz",
    ".pkl",
}


def tracked() -> list[Path]:
    """Every file that git keeps."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_images_weights_or_archives_are_kept() -> None:
    """Fixtures are drawn when a test needs them; pictures belong to the documents and show phantoms."""
    for path in tracked():
        place = path.relative_to(ROOT)
        if place.is_relative_to(WEIGHTS):
            assert path.suffix in {".json", ".safetensors"}, f"{place} is no weights"
            continue
        assert path.suffix.lower() not in NEVER, f"{place} does not belong into the repository"
        if path.suffix.lower() in PICTURES:
            assert place.parts[:2] == ("docs", "images"), f"{place}: pictures stand in docs/images alone"


def test_nothing_large_is_kept() -> None:
    """A large file is data, weights or a mistake; the built-in weights have a limit of their own."""
    sizes = {path.relative_to(ROOT): path.stat().st_size for path in tracked()}
    assert [place for place, size in sizes.items() if size > MOST_BYTES and not place.is_relative_to(WEIGHTS)] == []
    assert sum(size for place, size in sizes.items() if place.is_relative_to(WEIGHTS)) <= MOST_WEIGHTS
