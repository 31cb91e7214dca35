"""What a command hands back to be shown: text for a person, data for a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from cxrlab.core.json_values import plain


@dataclass(frozen=True)
class Result:
    """The outcome of a command.

    Args:
        text: For a person, without a final newline.
        data: The same for a program, printed by `--json`.
        ok: False makes the exit code 1 although nothing went wrong in the program (a check that failed).
        coloured: The text was coloured on purpose; colours in any other come from somebody's file and are not shown.
    """

    text: str
    data: Any
    ok: bool = True
    coloured: bool = False


def present(value: Any) -> Result | None:
    """The result of a function that knows nothing of the command line; None when it returned nothing.

    A path is shown as it is, a list line by line, a record or mapping as `key: value` lines.
    """
    if value is None or isinstance(value, Result):
        return value
    if isinstance(value, PurePath):
        return Result(str(value), {"path": value.as_posix()})
    data = plain(value)
    if isinstance(data, Mapping):
        return Result(columns(list(data.items())), data)
    if isinstance(data, list):
        rows = [
            item if isinstance(item, list) else list(item.values()) if isinstance(item, dict) else [item]
            for item in data
        ]
        return Result(columns(rows), data)
    return Result(str(data), data)


def columns(rows: Sequence[Sequence[Any]], indent: str = "") -> str:
    """Rows as left-aligned text columns, two spaces apart."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    count = max((len(row) for row in cells), default=0)
    widths = [max((len(row[k]) for row in cells if k < len(row)), default=0) for k in range(count)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in cells)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)
