"""What a command returns (text and tables for people, data for programs), and the formats in which it is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.json_values import dumps, plain
from cxrlab.core.tables import DASH, Interval, Table, as_text, latex_comment, lay_out, output_width, to_csv
from cxrlab.core.terminal import NoticeStream, terminal_safe

if TYPE_CHECKING:
    from cxrlab.training.run_folder import TrainingResult

Parts = Sequence[str | Table]


@dataclass(frozen=True)
class Result:
    """The outcome of a command."""

    # For people, without a final newline: one text, printed as it is, or sentences and tables in order, which are
    # fitted to the terminal and rendered by `--format`.
    text: str | Parts
    data: Any  # the outcome for programs, printed by `--json`
    ok: bool = True  # false makes the exit code 1, for a check that failed without an error
    coloured: bool = False  # whether the command coloured the text; colour codes that come from a file are not printed

    @property
    def parts(self) -> Parts:
        """Texts and tables in order."""
        return [self.text] if isinstance(self.text, str) else self.text


def render(result: Result, format: str = "table") -> str:
    """The result in one of `FORMATS`, with the control characters of names, ids and reports removed."""
    return FORMATS[format](result)


def _as_text(result: Result) -> str:
    wrap = not isinstance(result.text, str) and not result.coloured
    text = as_text(result.parts, output_width(), wrap=wrap)
    return terminal_safe(text, colours=result.coloured)


def _as_csv(result: Result) -> str:
    """The first table, with those of the same columns; what the CSV cannot hold goes to the error stream."""
    tables = [part for part in result.parts if isinstance(part, Table) and not part.summary]
    same = [table for table in tables if table.columns == tables[0].columns]
    notes = [part for part in result.parts if isinstance(part, str) and part.strip()]
    if others := [table.title or table.columns[0].name for table in tables if table not in same]:
        notes.append(f"not in this CSV: {', '.join(others)}; --format json has everything")
    NoticeStream(sys.stderr).write("".join(f"{terminal_safe(note)}\n" for note in notes))
    return terminal_safe(to_csv(same)) if same else ""


def _as_markdown(result: Result) -> str:
    parts = [
        "  \n".join(part.strip().splitlines()) if isinstance(part, str) else part.to_markdown() for part in result.parts
    ]
    return terminal_safe("\n\n".join(part for part in parts if part))


def _as_latex(result: Result) -> str:
    parts = [latex_comment(part) if isinstance(part, str) else part.to_latex() for part in result.parts]
    return terminal_safe("\n".join(["% needs \\usepackage{booktabs}", *(part for part in parts if part)]))


def _as_json(result: Result) -> str:
    return dumps(result.data, indent=2)


FORMATS: Mapping[str, Callable[[Result], str]] = MappingProxyType(
    {"table": _as_text, "csv": _as_csv, "md": _as_markdown, "latex": _as_latex, "json": _as_json}
)


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
    """Rows as left-aligned text columns that fit the terminal, two spaces apart."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    return "\n".join(lay_out(cells, output_width(), indent))


def counted(tally: Mapping[str, int], indent: str = "") -> str:
    """A line for each count: the count, and what was counted."""
    return columns([[f"{count:,}", name] for name, count in tally.items()], indent)


def number(value: float | None, sign: str = "", digits: int = 3) -> str:
    """A number with fixed decimals; a dash for null and NaN."""
    return DASH if value is None or value != value else f"{value:{sign}.{digits}f}"


def interval(found: Mapping[str, Any] | None, key: str = "value") -> Interval | None:
    """A measured value of a result file as the cell of a table."""
    return Interval(found.get(key), found.get("low"), found.get("high")) if found else None


def measurement(found: Mapping[str, Any] | None, key: str = "value", sign: str = "", digits: int = 3) -> str:
    """A measured value with its interval in brackets; a dash where there is none."""
    if not found or found.get(key) is None:
        return DASH
    low, high = found.get("low"), found.get("high")
    ends = "" if low is None or high is None else f" [{number(low, sign, digits)}, {number(high, sign, digits)}]"
    return number(found[key], sign, digits) + ends


def unused_data(done: TrainingResult) -> list[str]:
    """A line for the studies that a training left out, and one for the reports that it cut."""
    lines = []
    if left := sum(done.left_out.values()):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in done.left_out.items())
        lines.append(f"{left:,} {'study was' if left == 1 else 'studies were'} left out ({reasons})")
    if done.cut:
        lines.append(f"{done.cut:,} reports were cut at max_length")
    return lines
