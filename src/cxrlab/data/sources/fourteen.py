"""The fourteen CheXpert observations as columns of a table, in a form that half a million rows can be held in."""

from __future__ import annotations

from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.sources.csv_file import Row
from cxrlab.data.sources.own_labels import strongest
from cxrlab.data.sources.values import label_of

# One value for each of CHEXPERT_14, in its order; None is unknown.
Fourteen = tuple[int | None, ...]
# What a table of labels must have; that nothing was found may be left to be concluded.
NEEDED = tuple(name for name in CHEXPERT_14 if name != "No Finding")

AIRSPACE_OPACITY = "Airspace Opacity"
# The usual spellings, which need no closer look.
_USUAL = {"": None, "1.0": 1, "0.0": 0, "-1.0": -1, "1": 1, "0": 0, "-1": -1}


def fourteen(row: Row, place: str) -> Fourteen:
    """The labels of one row; a column that is not there (see `NEEDED`) is unknown.

    Args:
        row: Cells by column, under our names (see `our_names`).
        place: File and line, for the error of a cell that is no label.
    """
    cells = [row.get(column, "") for column in CHEXPERT_14]
    try:
        return tuple([_USUAL[cell] for cell in cells])
    except KeyError:
        return tuple(label_of(row.get(column, ""), f"{place}: '{column}'") for column in CHEXPERT_14)


def our_names(header: list[str]) -> list[str]:
    """A header under our names: labels by radiologists call one observation "Airspace Opacity"."""
    return ["Lung Opacity" if name == AIRSPACE_OPACITY else name for name in header]


def stated(values: Fourteen) -> dict[str, int]:
    """The labels that are known, by name, for `Study.labels`."""
    return {name: value for name, value in zip(CHEXPERT_14, values, strict=True) if value is not None}


def stronger(first: Fourteen, second: Fourteen) -> Fourteen:
    """What two rows on the same study say together: a presence outweighs a doubt, a doubt an absence."""
    pairs = zip(first, second, strict=True)
    return tuple(strongest([value for value in pair if value is not None]) for pair in pairs)
