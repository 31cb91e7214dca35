"""From a corpus's own labels to CheXpert's fourteen, and from several answers to one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cxrlab.core.label_maps import LABEL_MAPS
from cxrlab.core.vocabulary import CHEXPERT_14

# A presence outweighs a doubt, which outweighs an absence.
_RANK = {0: 0, -1: 1, 1: 2}


def strongest(values: Iterable[int]) -> int | None:
    """1 when any is 1, else -1 when any is -1, else 0; None of nothing."""
    return max(values, key=_RANK.__getitem__, default=None)


def chexpert_from(corpus: str, own: Mapping[str, int], told_absent: Collection[str] = ()) -> dict[str, int]:
    """The CheXpert labels that a corpus's own labels state, in CheXpert's order.

    Args:
        corpus: Name of its label map; a label without a row there states nothing.
        own: Own label → 1, 0 or -1.
        told_absent: Own labels that are as wide as the CheXpert label they lead to, so that the absence of the one is
            the absence of the other. No rib fracture is not no fracture.

    `No Finding` is never -1.
    """
    rows = LABEL_MAPS[corpus]
    found: dict[str, list[int]] = {}
    for name, value in own.items():
        label = rows[name].label if name in rows else None
        if label is not None and (value != 0 or name in told_absent) and (label, value) != ("No Finding", -1):
            found.setdefault(label, []).append(value)
    return {label: max(found[label], key=_RANK.__getitem__) for label in CHEXPERT_14 if label in found}
