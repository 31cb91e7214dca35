"""Small pieces of HTML. Whatever comes from a file passes through `text` and cannot become markup."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrlab.core.errors import DataError

_KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
UNKNOWN = "–"


def text(value: Any) -> str:
    """A value as inert text: numbers rounded for people, nothing as a dash, markup and quotes escaped."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{text(key)} {text(item)}" for key, item in value.items()) or UNKNOWN
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value) or UNKNOWN
    return html.escape(str(value), quote=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table of ready-made cells; the last `numbers` columns are set flush right."""
    first = len(head) - numbers

    def row(cells: Sequence[str], tag: str) -> str:
        marked = (
            f"<{tag}{' class=number' if place >= first else ''}>{cell}</{tag}>" for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<div class=wide><table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table></div>"


def grouped_table(groups: Sequence[tuple[str, Sequence[str]]], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table of ready-made cells whose columns stand in titled groups, set apart by a line.

    Args:
        groups: Title of a group and the headings of its columns.
        rows: Cells.
        words: Columns at the left that hold words; all others are set flush right.
    """
    firsts = {sum(len(heads) for _, heads in groups[:place]) for place in range(1, len(groups))}

    def style(place: int) -> str:
        names = [name for name, is_so in (("number", place >= words), ("edge", place in firsts)) if is_so]
        return f' class="{" ".join(names)}"' if names else ""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{style(at)}>{cell}</{tag}>" for at, cell in enumerate(cells)) + "</tr>"

    titles = "".join(
        f"<th colspan={len(heads)}{' class=edge' if place else ''}>{name}</th>"
        for place, (name, heads) in enumerate(groups)
    )
    heads = row([head for _, several in groups for head in several], "th")
    body = "".join(row(cells, "td") for cells in rows)
    return f"<div class=wide><table><thead><tr>{titles}</tr>{heads}</thead><tbody>{body}</tbody></table></div>"


def facts(pairs: Mapping[str, Any]) -> str:
    """Names and values as a list of two columns; values are escaped."""
    rows = "".join(f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in pairs.items())
    return f"<dl>{rows}</dl>"


def section(title: str, *parts: str, note: str = "") -> str:
    """A titled part of the page; empty parts are left out, and without any the whole section is."""
    inside = "".join(parts)
    lead = f"<p class=note>{note}</p>" if note else ""
    return f"<section><h2>{text(title)}</h2>{lead}{inside}</section>" if inside else ""


def cautions(told: Iterable[tuple[str, Any]]) -> str:
    """Sentences of caution in boxes, each once with the runs that it is about.

    Args:
        told: Name of a run, and its sentences; anything but a list is none.
    """
    about: dict[str, list[str]] = {}
    for name, sentences in told:
        for sentence in sentences if isinstance(sentences, (list, tuple)) else ():
            about.setdefault(str(sentence), []).append(name)
    return "".join(
        f"<p class=caution role=note><strong>Caution.</strong> {text(sentence)} <span class=small>"
        f"({text(', '.join(dict.fromkeys(names)))})</span></p>"
        for sentence, names in about.items()
    )


def picture(data: bytes, alt: str, name: str, style: str = "image") -> str:
    """An `<img>` that carries its PNG or JPEG bytes; anything else is a `DataError` that names the file."""
    kind = next((kind for start, kind in _KINDS.items() if data.startswith(start)), None)
    if kind is None:
        raise DataError(f"{name} is not a PNG or JPEG picture; make the run again.")
    return f'<img class="{style}" alt="{text(alt)}" src="data:{kind};base64,{base64.b64encode(data).decode()}">'


def figure(value: Any, sign: str = "") -> str:
    """A measurement with three decimals; a dash where there is none.

    Args:
        value: A number, or None.
        sign: `+` writes the sign of a difference.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return UNKNOWN
    return f"{value:{sign}.3f}"


def ends(found: Mapping[str, Any], sign: str = "") -> str:
    """The interval of a measurement, from its keys `low` and `high`; a dash where there is none."""
    if found.get("low") is None or found.get("high") is None:
        return UNKNOWN
    return f"{figure(found['low'], sign)} to {figure(found['high'], sign)}"


def bar(share: float) -> str:
    """A bar for a share in [0, 1]."""
    return f'<span class=bar><span style="width:{100 * min(max(share, 0.0), 1.0):.1f}%"></span></span>'
