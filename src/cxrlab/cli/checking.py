"""`cxrlab data check` and `cxrlab data scrub`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.result import Result, columns
from cxrlab.data.config import CheckConfig, ScrubConfig

if TYPE_CHECKING:
    from cxrlab.data.check import CheckReport
    from cxrlab.data.scrub.scrub import ScrubReport
    from cxrlab.data.statistics import Quartiles, Statistics

SUMMARY = "summary.json"


def check(corpus: Path, config: CheckConfig, out: Path | None = None) -> Result:
    """Look for every defect of a corpus and count what is in it; exit 1 when there is a defect.

    Defects are unreadable images, malformed lines, patients in two splits, and text, splits or views that are missing
    without the card saying so. The numbers are studies by
    split, view, sex, age and label, lengths of reports, repeats, and what images look like. With --out a data card
    with a sheet of images is written, one page that needs no network; treat it as what the corpus itself is.

    Args:
        corpus: Folder of the corpus.
        config: Settings.
        out: Run folder for check.json, statistics.json, duplicates.json (with --duplicates), sheet.png and page.html;
            nothing is kept without it.
    """
    from cxrlab.data.check import check_corpus, write_data_card
    from cxrlab.render.page import write_page

    if out is None:
        return _checked(check_corpus(corpus, config.workers, duplicates=config.duplicates))
    found = write_data_card(corpus, config, out)
    page = write_page([out], title=f"Data card: {corpus.resolve().name}")
    result = _checked(found)
    return Result(f"{result.text}\nwrote {page}", {**result.data, "page": page}, ok=found.ok)


def scrub(source: Path, config: ScrubConfig, out: Path) -> Result:
    """Tell what in images may name a patient, before anything is exported: headers, notes, and burned-in text.

    Every DICOM, PNG and JPEG file of a corpus or folder is read. RUN/scrub.jsonl lists header elements by keyword and
    boxes of text, never a value. With --blank copies go to RUN/cleaned, with new headers and blanked text; nothing is
    changed in place. Exit 1 when an image could not be examined or cleaned; such an image is not copied.

    Args:
        source: A corpus, a folder or one image.
        config: Settings.
        out: Run folder.
    """
    from cxrlab.data.scrub.scrub import run_scrub

    found = run_scrub(source, config, out)
    return Result(_scrub_text(found, out), found, ok=found.ok)


def _checked(found: CheckReport) -> Result:
    text = f"{found.table()}\n{statistics_text(found.statistics)}"
    data = {**found.to_json(), "statistics": found.statistics}
    if found.duplicates is not None:
        text += "\nwhich reports and images these are stands in duplicates.json of --out, and in --json"
        data["duplicates"] = found.duplicates
    return Result(text, data, ok=found.ok)


def statistics_text(numbers: Statistics) -> str:
    """The numbers of a corpus in a few lines; the rest stands in the JSON form."""
    images = numbers.images
    studies = sum(numbers.splits.values())
    rows = [
        ["views", _counts({name: row["all"] for name, row in numbers.views.items()})],
        ["usable by default", _by_split(numbers.usable)],
        ["sex", _counts({name: row["all"] for name, row in numbers.sexes.items()})],
        ["age", _counts({name: row["all"] for name, row in numbers.ages.items()})],
        ["labels", f"{len(numbers.labels)} CheXpert, {len(numbers.own_labels)} of its own"],
        *([f"{kind}, words", _spread(row)] for kind, row in numbers.texts.items()),
        ["masked words", _counts(numbers.masked)],
        ["image width", _spread(images.width)],
        ["image height", _spread(images.height)],
        ["mean grey", _spread(images.mean_grey)],
        ["images that look odd", _counts({name: count for name, count in images.suspects.items() if count})],
        ["images not in the folder", f"{numbers.absent_images:,}" if numbers.absent_images else ""],
        *(
            [f"{kind}, groups", _repeats(row.groups, row.members, row.across_splits)]
            for kind, row in numbers.repeats.items()
        ),
        ["left out by the import", _counts(numbers.dropped)],
        ["remarks of the import", _counts(numbers.remarks)],
    ]
    return columns([row for row in rows if row[1]] if studies else [], "  ")


def _by_split(table: Mapping[str, Mapping[str, int]]) -> str:
    """`train 90 of 100 (no findings text 10), test 20 of 20`."""
    from cxrlab.data.statistics import USABLE

    splits = list(dict.fromkeys(split for row in table.values() for split in row if split != "all"))
    parts = []
    for split in splits:
        counts = {name: row[split] for name, row in table.items() if split in row}
        taken = counts.pop(USABLE, 0)
        why = f" ({_counts(counts)})" if counts else ""
        parts.append(f"{split} {taken:,} of {taken + sum(counts.values()):,}{why}")
    return ", ".join(parts)


def _counts(tally: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in tally.items())


def _spread(numbers: Quartiles | None) -> str:
    if numbers is None:
        return ""
    if numbers.least == numbers.most:
        return f"{numbers.least:,g} (n {numbers.n:,})"
    quartiles = " / ".join(f"{value:,g}" for value in (numbers.first, numbers.median, numbers.third))
    return f"{numbers.least:,g} to {numbers.most:,g}, quartiles {quartiles} (n {numbers.n:,})"


def _repeats(groups: int, members: int, across: int) -> str:
    return f"{groups:,} with {members:,} members, {across:,} across splits" if groups else "0"


def _scrub_text(found: ScrubReport, out: Path) -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in found.states.items())
    lines = [f"{found.files:,} files: {states or 'none'}"]
    rows = [
        ["images with burned-in text", f"{found.with_text:,}"],
        ["images with a side marker", f"{found.with_markers:,}"],
        ["headers that say text is burned in", f"{found.burned_in:,}"],
        ["headers with private elements", f"{found.private:,}"],
    ]
    lines.append(columns(rows, "  "))
    for title, tally in (("elements that may tell (files)", found.tags), ("not done", found.reasons)):
        if tally:
            shown = list(tally.items())
            lines.append(f"{title}:\n" + columns([[f"{count:,}", name] for name, count in shown[:_MOST_SHOWN]], "  "))
            if len(shown) > _MOST_SHOWN:
                lines.append(f"  and {len(shown) - _MOST_SHOWN} more kinds in {out / SUMMARY}")
    if found.cleaned is not None:
        lines.append(f"copies in {found.cleaned}; look at them before you pass them on")
    return "\n".join(lines)


_MOST_SHOWN = 12
