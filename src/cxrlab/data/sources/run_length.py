"""Masks written as runs of pixels, as segmentation challenges publish them."""

from __future__ import annotations


def run_bounds(runs: str, height: int, width: int) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of a run-length mask, right and bottom one beyond the last pixel; None if it is none.

    Args:
        runs: Pairs of numbers: how many pixels to skip since the end of the run before, how many to mark. Pixels are
            counted down the columns, from the left one to the right one, starting with 0.
        height: Rows of the image.
        width: Columns of the image.

    Text that is no such list, a mask of no pixel and one that leaves the image give None.
    """
    words = runs.split()
    if not words or len(words) % 2 or not all(word.isdecimal() and len(word) < 10 for word in words):
        return None
    left, top, right, bottom = width, height, -1, -1
    end = 0
    for skip, length in zip(map(int, words[::2]), map(int, words[1::2]), strict=True):
        start, end = end + skip, end + skip + length
        if end > height * width:
            return None
        if length == 0:
            continue
        first, last = start // height, (end - 1) // height
        # A run that goes on in the next column touches the lower edge of the one and the upper edge of the other.
        above, below = (start % height, (end - 1) % height) if first == last else (0, height - 1)
        left, right = min(left, first), max(right, last)
        top, bottom = min(top, above), max(bottom, below)
    return (left, top, right + 1, bottom + 1) if right >= 0 else None
