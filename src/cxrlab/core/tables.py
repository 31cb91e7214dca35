"""Tables of results, as text that fits a terminal, CSV, Markdown, LaTeX, HTML or a pandas data frame."""

from __future__ import annotations

import csv
import html
import importlib
import io
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cxrlab.core.errors import MissingExtra

DASH = "–"  # stands for a value that does not exist
_GAP = "  "
_LONGEST_PART = 24  # characters of a word that are kept together where a cell is wrapped


@dataclass(frozen=True)
class Interval:
    """A measured value and the ends of its interval; None or not-a-number where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


Cell = str | int | float | bool | Interval | None


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str  # heading for people; also the name in CSV and data frames, unless `key` is given
    key: str = ""  # name in CSV and data frames
    digits: int = 3  # decimals that people are shown; CSV and data frames have full precision
    sign: str = ""  # `+` shows the sign of positive numbers too
    # `text` for a column that people are shown alone, `data` for one of CSV and data frames alone.
    only: Literal["", "text", "data"] = ""
    write: Callable[[Any], str] | None = None  # how a cell is written for people; by its type when None

    def text(self, cell: Any) -> str:
        """A cell for people, on one line."""
        if self.write is not None:
            return self.write(cell)
        if isinstance(cell, Interval):
            found = self._number(cell.value)
            if found == DASH or _absent(cell.low) and _absent(cell.high):
                return found
            return f"{found} [{self._number(cell.low)}, {self._number(cell.high)}]"
        if cell is None or isinstance(cell, str):
            return " ".join((cell or "").split())
        if isinstance(cell, bool):
            return "yes" if cell else "no"
        return f"{cell:,}" if isinstance(cell, int) else self._number(cell)

    def _number(self, value: float | None) -> str:
        return DASH if value is None or value != value else f"{value:{self.sign}.{self.digits}f}"


@dataclass(frozen=True)
class Table:
    """Rows of typed cells under named columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""  # what the table shows
    summary: bool = False  # whether it repeats figures of other tables; CSV leaves it out

    def __post_init__(self) -> None:
        if wrong := next((row for row in self.rows if len(row) != len(self.columns)), None):
            raise ValueError(f"a row of {len(wrong)} cells does not fit {len(self.columns)} columns")

    @property
    def readable_columns(self) -> list[Column]:
        """The columns that are printed for people; `csv` has all."""
        return [column for column in self.columns if column.only != "data"]

    def cells(self) -> list[list[str]]:
        """The rows as people read them."""
        return [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=True) if column.only != "data"]
            for row in self.rows
        ]

    def measured(self) -> list[bool]:
        """Whether each shown column holds intervals, which are broken only where words are narrow already."""
        return [
            any(isinstance(row[place], Interval) for row in self.rows)
            for place, column in enumerate(self.columns)
            if column.only != "data"
        ]

    def numeric(self) -> list[bool]:
        """Whether each shown column holds numbers, which are aligned to the right."""
        kinds: list[bool] = []
        for place, column in enumerate(self.columns):
            cells = [row[place] for row in self.rows if row[place] is not None]
            numbers = bool(cells) and all(isinstance(cell, (int, float)) for cell in cells)
            kinds += [numbers and not isinstance(cells[0], bool)] if column.only != "data" else []
        return kinds

    def records(self) -> tuple[list[str], list[list[Any]]]:
        """Names and values at full precision; an interval as three columns (value, low, high), no value as None."""
        places = [place for place, column in enumerate(self.columns) if column.only != "text"]
        with_ends = [any(isinstance(row[place], Interval) for row in self.rows) for place in places]
        names: list[str] = []
        for place, ends in zip(places, with_ends, strict=True):
            column = self.columns[place]
            key = column.key or column.name
            names += [key, *(end if key == "value" else f"{key}_{end}" for end in ("low", "high"))] if ends else [key]
        rows = []
        for row in self.rows:
            values: list[Any] = []
            for place, ends in zip(places, with_ends, strict=True):
                cell = row[place]
                whole = cell if isinstance(cell, Interval) else Interval(cell)
                values += [whole.value, whole.low, whole.high] if ends else [cell]
            rows.append([None if _absent(value) else value for value in values])
        return names, rows

    def to_text(self, width: int | None = None) -> str:
        """Aligned columns; those of words are wrapped where the table is wider than `width` characters.

        A table that cannot become as narrow has a paragraph for each row instead, with a line for each column.
        """
        head, rows = [column.name for column in self.readable_columns], self.cells()
        lines = lay_out([head, *rows], width, right=self.numeric(), measured=self.measured())
        if width is not None and any(len(line) > width for line in lines):
            lines = []
            for first, *rest in rows:
                lines.append(first)
                for name, cell in zip(head[1:], rest, strict=True):
                    text = f"  {name}: {cell}" if cell else ""
                    lines += textwrap.wrap(
                        text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
                    )
        return "\n".join([_wrap_text(self.title, width), *lines] if self.title else lines)

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown."""
        rows = [
            [_markdown(column.name) for column in self.readable_columns],
            ["---:" if n else "---" for n in self.numeric()],
        ]
        rows += [[_markdown(cell) for cell in row] for row in self.cells()]
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([f"**{_markdown(self.title)}**", "", *lines] if self.title else lines)

    def to_latex(self) -> str:
        """A `tabular` with the rules of the package booktabs."""
        spec = "".join("r" if number else "l" for number in self.numeric())
        # In braces: behind the line break of a row LaTeX would read a bracket or star as its argument.
        body = [" & ".join(map(latex, row)) + r" \\" for row in self.cells()]
        body = [f"{{}}{line}" if line.startswith(("[", "*")) else line for line in body]
        head = " & ".join(latex(column.name) for column in self.readable_columns) + r" \\"
        lines = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*([latex_comment(self.title)] if self.title else []), *lines, r"\end{tabular}"])

    def to_html(self) -> str:
        """A table for a notebook."""
        align = ['<{0} style="text-align:%s">{1}</{0}>' % ("right" if n else "left") for n in self.numeric()]
        head = "".join(a.format("th", html.escape(c.name)) for a, c in zip(align, self.readable_columns, strict=True))
        rows = [
            "".join(a.format("td", html.escape(x)) for a, x in zip(align, row, strict=True)) for row in self.cells()
        ]
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def to_frame(self) -> Any:
        """A pandas data frame at full precision; `MissingExtra` where pandas is not installed."""
        return _frame(*self.records())


def as_text(parts: Sequence[str | Table], width: int | None = None, *, wrap: bool = True) -> str:
    """Texts and tables in order, in lines of at most `width` characters where that is possible.

    With `wrap` false only tables are fitted.
    """
    fit = width if wrap else None
    return "\n".join(_wrap_text(part, fit) if isinstance(part, str) else part.to_text(width) for part in parts)


def as_html(parts: Sequence[str | Table]) -> str:
    """Texts and tables in order, for a notebook."""
    return "".join(
        f"<p>{html.escape(part)}</p>".replace("\n", "<br>") if isinstance(part, str) else part.to_html()
        for part in parts
    )


def to_csv(tables: Sequence[Table]) -> str:
    """One CSV of tables with the same columns; with several, the first column `table` has their titles."""
    several = len(tables) > 1
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for place, table in enumerate(tables):
        names, rows = table.records()
        if not place:
            writer.writerow([*(["table"] if several else []), *names])
        for row in rows:
            writer.writerow([*([safe_cell(table.title)] if several else []), *map(safe_cell, row)])
    return stream.getvalue().removesuffix("\n")


_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def safe_cell(cell: Any) -> Any:
    """A cell that no spreadsheet runs as a formula: text that begins like one gets an apostrophe, a number stays.

    >>> safe_cell("=1+2"), safe_cell("-0.12"), safe_cell(-1), safe_cell("- none")
    ("'=1+2", '-0.12', -1, "'- none")
    """
    if cell is None:
        return ""
    formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def plain_cell(cell: str) -> str:
    """The text that `safe_cell` was given, from the cell in the file."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def output_width() -> int | None:
    """Characters per line of the output: those of the terminal, or COLUMNS where it is set; None for pipes and files."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    try:
        terminal = sys.stdout is not None and sys.stdout.isatty()
    except ValueError:  # a closed stream
        terminal = False
    return shutil.get_terminal_size().columns if terminal else None


def lay_out(
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    indent: str = "",
    right: Sequence[bool] = (),
    measured: Sequence[bool] = (),
) -> list[str]:
    """Lines of aligned columns, two spaces apart.

    Where a row is wider than `width`, the widest columns of words are narrowed and their cells are wrapped, then
    columns with intervals; columns of numbers, and tables that cannot become as narrow, keep their width.

    Args:
        right: Whether each column holds numbers, which are aligned to the right.
        measured: Whether each column holds intervals.
    """
    count = max(map(len, rows), default=0)
    right = [*right, *([False] * (count - len(right)))]
    measured = [*measured, *([False] * (count - len(measured)))]
    sizes = [max((len(row[place]) for row in rows if place < len(row)), default=0) for place in range(count)]
    if width is not None:
        least = [
            max((_longest_part(row[place]) for row in rows if place < len(row)), default=0) for place in range(count)
        ]
        least = [size if right[place] else min(size, least[place]) for place, size in enumerate(sizes)]
        excess = sum(sizes) + len(_GAP) * max(count - 1, 0) + len(indent) - width
        while excess > 0:
            wide = [place for place in range(count) if sizes[place] > least[place]]
            if not wide:
                break
            sizes[max(wide, key=lambda place: (not measured[place], sizes[place]))] -= 1
            excess -= 1
        sizes = _share_out(rows, sizes, measured)
    lines = []
    for row in rows:
        wrapped = [_wrap(cell, size) for cell, size in zip(row, sizes, strict=False)]
        for number in range(max(map(len, wrapped), default=1)):
            parts = [cell[number] if number < len(cell) else "" for cell in wrapped]
            aligned = [
                part.rjust(size) if to_right else part.ljust(size)
                for part, size, to_right in zip(parts, sizes, right, strict=False)
            ]
            lines.append(f"{indent}{_GAP.join(aligned)}".rstrip())
    return lines


def _share_out(rows: Sequence[Sequence[str]], sizes: list[int], measured: Sequence[bool]) -> list[int]:
    """The sizes with what wrapped cells leave empty given to the narrowest columns of words."""
    cells = [[row[place] for row in rows if place < len(row)] for place in range(len(sizes))]
    whole = [max(map(len, column), default=0) for column in cells]
    used = [
        max((len(line) for cell in column for line in _wrap(cell, size)), default=0)
        for column, size in zip(cells, sizes, strict=True)
    ]
    for _ in range(sum(sizes) - sum(used)):
        narrow = [place for place, size in enumerate(used) if size < whole[place] and not measured[place]]
        if narrow:
            used[min(narrow, key=lambda place: used[place])] += 1
    return used


# A cell is wrapped between words. An interval is one word, and so is a metric with its arrow.
_WORD = re.compile(r"(?:\[[^\]\s]+, [^\]\s]+\]|\S+(?: [↑↓])?)\S*\s*")
# Words longer than the column are broken behind the signs that join the parts of names and paths; flags keep their dashes.
_PART = re.compile(r"(?:\[[^\]\s]+, [^\]\s]+\]|\(?-*\S+?(?:[/:._,=#|-]+(?=[^\W\d])|$|(?=\s)))\s*")


def _longest_part(text: str) -> int:
    return min(max((len(part.rstrip()) for part in _PART.findall(text)), default=0), _LONGEST_PART)


def _wrap(text: str, width: int) -> list[str]:
    """The lines of a cell; a part that is longer than the column is broken."""
    if len(text) <= width:
        return [text]
    lines, line = [], ""
    for word in _WORD.findall(text):
        for part in [word] if len(word.rstrip()) <= width else _PART.findall(word):
            if line and len(line + part.rstrip()) > width:
                lines.append(line.rstrip())
                line = ""
            line += part
            while len(line.rstrip()) > width:
                lines.append(line[:width])
                line = line[width:]
    return [*lines, line.rstrip()] if line.rstrip() else lines


def _wrap_text(text: str, width: int | None) -> str:
    """Text with its long lines broken at blanks; commands, which are pasted, stay whole."""
    lines = []
    for line in text.split("\n"):
        start = line[: len(line) - len(line.lstrip())]
        if width is None or len(line) <= width or line.lstrip().startswith("cxrlab "):
            lines.append(line)
            continue
        lines += textwrap.wrap(line, width, subsequent_indent=start, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _markdown(text: str) -> str:
    return re.sub(r"([\\|`*_<\[\]~])", r"\\\1", text)


_LATEX: Mapping[str, str] = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "∞": r"$\infty$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$",
    "−": "$-$", DASH: "--", "…": r"\dots{}", "α": r"$\alpha$", "τ": r"$\tau$", "ε": r"$\varepsilon$",
}  # fmt: skip


def latex(text: str) -> str:
    """Text in which LaTeX reads no sign as a command; a hyphen before a number becomes a minus."""
    text = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)


def latex_comment(text: str) -> str:
    """Text as comment lines of LaTeX."""
    return "\n".join(f"% {line}" for line in text.splitlines())


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _frame(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    try:
        pandas: Any = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise MissingExtra(
            "to_frame() needs pandas, which is not installed. Install it with: pip install pandas"
        ) from None
    return pandas.DataFrame(list(rows), columns=list(names))
