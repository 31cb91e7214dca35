"""Texts and films of a corpus that are nearly the same, counted for its statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cxrlab.data.checking.statistics import Repeats
from cxrlab.data.duplicates.groups import image_groups, report_groups

Groups = Sequence[Sequence[str]]


def near_repeats(
    texts: Iterable[tuple[str, str]],
    pictures: Iterable[tuple[str, bytes, int]],
    split_of: Callable[[str], str | None],
) -> dict[str, Repeats]:
    """How many texts and films are alike without being the same.

    Args:
        texts: Study and its text; an empty one is passed over.
        pictures: `study#k`, digest of the pixels, perceptual hash.
        split_of: The split of a study.
    """
    reports = report_groups((name, text) for name, text in texts if text)
    films = image_groups(pictures)
    return {
        "similar report": _counted(reports.near, split_of),
        "similar film": _counted(films.near, lambda name: split_of(name.rpartition("#")[0])),
    }


def _counted(groups: Groups, split_of: Callable[[str], str | None]) -> Repeats:
    across = sum(len({split_of(name) for name in group}) > 1 for group in groups)
    return Repeats(len(groups), sum(map(len, groups)), across)
