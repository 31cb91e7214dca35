"""Section on the statistics of a corpus: patients, labels, texts, pixels, and duplicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import UNKNOWN, Cell, IntervalBar, Table, number, part, readable
from cxrlab.render.run_folder import CHECK, STATISTICS, RunFolder, per_run

Numbers = Mapping[str, Any]

_SPLITS = ("train", "val", "test", "none")
_SPLIT_HEADS = {"none": "no split"}
_QUARTILES = ("least", "25 %", "median", "75 %", "most")
_STATES = ("present", "uncertain", "absent", "unknown")


@dataclass(frozen=True)
class Texts:
    """Lengths of the texts of a corpus."""

    with_text: int
    studies: int
    lengths: Table
    masked: str


@dataclass(frozen=True)
class Pixels:
    """Image files of a corpus: how many were read and their sizes, and how many the source lists without a file."""

    read: int
    depth: str
    missing: int
    sizes: Table
    suspects: Table


@dataclass(frozen=True)
class DataCard:
    """A corpus in numbers."""

    defects: Table  # What is wrong with it
    people: tuple[Table, ...]  # Images by view, studies by sex and age
    notes: tuple[str, ...]  # Further counts of studies
    labels: tuple[tuple[str, str, Table], ...]  # Title, whose labels, and the table
    texts: Texts | None  # Lengths
    pixels: Pixels | None  # Image files
    repeats: Table  # What occurs more than once
    import_notes: tuple[Table, ...]  # What the import left out and remarked


@per_run(STATISTICS)
def data_cards(run: RunFolder, numbers: Numbers) -> DataCard:
    """All statistics of a run that checked a corpus."""
    people = (
        ("images by view", "views"),
        ("used for training by default", "usable"),
        ("studies by sex", "sexes"),
        ("studies by age", "ages"),
    )
    notes = (("with_prior", "have an earlier study of the same patient"), ("with_boxes", "have boxes"))
    labels = (
        ("Labels", "CheXpert's observations", part(numbers, "labels")),
        ("Labels of the corpus's own", "The corpus's own labels", part(numbers, "own_labels")),
    )
    tallies = (("left out by the import", "dropped"), ("remarks of the import", "remarks"))
    repeats = [
        [kind, *(row.get(key) for key in ("groups", "members", "across_splits"))]
        for kind, row in part(numbers, "repeats").items()
    ]
    checked = run.result(CHECK)
    examples = {row.get("kind"): row.get("message") for row in reversed(checked.get("examples") or [])}
    defects: list[list[Any]] = [
        [Cell(kind, tone="bad"), examples.get(kind), n] for kind, n in part(checked, "problems").items()
    ]
    stated = "no problem: stated on the card, or a corpus of labels only"
    defects += [[kind, stated, n] for kind, n in part(checked, "stated").items()]
    texts = None
    if lengths := part(numbers, "texts"):
        studies = sum(part(numbers, "splits").values()) or 1
        longest = max(row.get("third") or 0 for row in lengths.values()) * 1.6 or 1
        body = [
            [kind, _box(row, longest), row.get("n"), _share((row.get("n") or 0) / studies), *_quartiles(row)]
            for kind, row in lengths.items()
        ]
        masked = (f"{mark} in {readable(count)} studies" for mark, count in part(numbers, "masked").items())
        table = Table(["text", "words", "studies", "share", *_QUARTILES], body, words=2)
        texts = Texts(numbers.get("with_text", 0), studies, table, ", ".join(masked))
    return DataCard(
        defects=Table(["what is wrong", "for example", "how often"], defects, words=2),
        people=tuple(_by_split(title, part(numbers, key)) for title, key in people if part(numbers, key)),
        notes=tuple(f"{readable(numbers[key])} studies {words}" for key, words in notes if numbers.get(key)),
        labels=tuple((title, whose, _labels(rows)) for title, whose, rows in labels if rows),
        texts=texts,
        pixels=_pixels(numbers),
        repeats=Table(["what occurs more than once", "groups", "members", "groups across splits"], repeats, words=1),
        import_notes=tuple(
            Table([title, "studies"], list(part(numbers, key).items()), words=1)
            for title, key in tallies
            if part(numbers, key)
        ),
    )


def _by_split(title: str, rows: Mapping[str, Mapping[str, int]]) -> Table:
    """Counts by split, with a bar for the share of all."""
    total = sum(row.get("all", 0) for row in rows.values()) or 1
    splits = [name for name in _SPLITS if any(name in row for row in rows.values())]
    body = []
    for value, row in rows.items():
        count = row.get("all", 0)
        body.append(
            [value, Cell(bar=count / total), count, _share(count / total), *(row.get(one, 0) for one in splits)]
        )
    return Table([title, "", "all", "share", *(_SPLIT_HEADS.get(name, name) for name in splits)], body, words=2)


def _labels(rows: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Table:
    """Each label with all four states, and how often it is present in each split."""
    splits = [name for name in _SPLITS if any(name in row for row in rows.values())]
    body = []
    for name, row in sorted(rows.items(), key=lambda row: -row[1].get("all", {}).get("present", 0)):
        everywhere = row.get("all", {})
        total = sum(everywhere.values()) or 1
        stack = Cell(stack=tuple((state, everywhere.get(state, 0) / total) for state in _STATES[:3]))
        present = [row.get(split, {}).get("present", 0) for split in splits]
        body.append([name, stack, *(everywhere.get(state, 0) for state in _STATES), *present])
    return Table(["label", "", *_STATES, *(_SPLIT_HEADS.get(name, name) for name in splits)], body, words=2)


def _pixels(numbers: Numbers) -> Pixels | None:
    images, missing = part(numbers, "images"), numbers.get("absent_images") or 0
    read = images.get("read") or 0
    if not read and not missing:
        return None
    keys = {
        "width in pixels": "width",
        "height in pixels": "height",
        "mean grey": "mean_grey",
        "spread of grey": "spread_of_grey",
    }
    sizes = [
        [name, _box(row, row.get("most") or 1), *_quartiles(row)]
        for name, key in keys.items()
        if (row := part(images, key)) and read
    ]
    odd = [(name, n) for name, n in part(images, "suspects").items() if n]
    odd += [("in colour", images["colour"])] if images.get("colour") else []
    suspects = [[name, Cell(bar=n / read), n] for name, n in odd if read]
    depth = ", ".join(f"{kind} {readable(count)}" for kind, count in part(images, "depth").items())
    table = Table(["images that look odd", "", "images"], suspects, words=2)
    return Pixels(read, depth, missing, Table(["", "", *_QUARTILES], sizes, words=2), table)


def _quartiles(row: Numbers) -> list[str]:
    values = (row.get(key) for key in ("least", "first", "median", "third", "most"))
    return [
        UNKNOWN if known is None else readable(int(known)) if known.is_integer() else f"{known:.3f}"
        for known in map(number, values)
    ]


def _box(row: Numbers, longest: float) -> Cell:
    """The middle half as a bar and the median as a mark, on a scale from 0."""
    low, middle, high = (
        100 * min(max((row.get(key) or 0) / longest, 0.0), 1.0) for key in ("first", "median", "third")
    )
    return Cell(scale=IntervalBar(f"{low:.1f}", f"{high - low:.1f}", f"{middle:.1f}"))


def _share(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
