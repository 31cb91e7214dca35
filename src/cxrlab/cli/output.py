"""What a command returns (text for people, data for programs), and how numbers and columns are written in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from cxrlab.core.json_values import plain

if TYPE_CHECKING:
    from cxrlab.training.run_folder import TrainingResult


@dataclass(frozen=True)
class Result:
    """The outcome of a command."""

    text: str  # For people, without a final newline
    data: Any  # The same for programs, printed by `--json`
    ok: bool = True  # False makes the exit code 1, for a check that failed without an error
    coloured: bool = False  # Whether the command coloured the text; colour codes that come from a file are not printed


def present(value: Any) -> Result | None:
    """The result of a function that is not written for the command line; None when it returned nothing.

    A path is printed as it is, a list line by line, a record or mapping as `key: value` lines.
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


def counted(tally: Mapping[str, int], indent: str = "") -> str:
    """A line for each count: the count, and what was counted."""
    return columns([[f"{count:,}", name] for name, count in tally.items()], indent)


def number(value: float | None, sign: str = "", digits: int = 3) -> str:
    """A number with fixed decimals; a dash for null and NaN."""
    return "–" if value is None or value != value else f"{value:{sign}.{digits}f}"


def measurement(found: Mapping[str, Any] | None, key: str = "value", sign: str = "", digits: int = 3) -> str:
    """A measured value with its interval in brackets; a dash where there is none."""
    if not found or found.get(key) is None:
        return "–"
    low, high = found.get("low"), found.get("high")
    ends = "" if low is None or high is None else f" [{number(low, sign, digits)}, {number(high, sign, digits)}]"
    return number(found[key], sign, digits) + ends


def unused_data(done: TrainingResult) -> list[str]:
    """A line for the studies that a training left out, and one for the reports that it cut."""
    lines = []
    if left := sum(done.left_out.values()):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in done.left_out.items())
        lines.append(f"{left:,} studies were left out ({reasons})")
    if done.cut:
        lines.append(f"{done.cut:,} reports were cut at max_length")
    return lines
