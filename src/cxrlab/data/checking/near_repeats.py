"""Texts and images of a corpus that are the same or nearly so: which they are, and how many for its statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cxrlab.data.checking.statistics import Repeats
from cxrlab.data.duplicates.groups import Duplicates


def near_repeats(found: Duplicates, split_of: Callable[[str], str | None]) -> dict[str, Repeats]:
    """How many texts and images are alike without being the same.

    Args:
        found: Which they are.
        split_of: The split of a study.
    """
    return {
        "similar report": _counted(found.reports.near, split_of),
        "similar image": _counted(found.images.near, lambda name: split_of(name.rpartition("#")[0])),
    }


def _counted(groups: Sequence[Sequence[str]], split_of: Callable[[str], str | None]) -> Repeats:
    across = sum(len({split_of(name) for name in group}) > 1 for group in groups)
    return Repeats(len(groups), sum(map(len, groups)), across)
