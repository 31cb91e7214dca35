"""`cxrlab data import table`, `import dicom`, `import parquet` and `card`: corpora of one's own data and of shards."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.cli.output import Result, columns, counted
from cxrlab.data.config import CardConfig, DicomFolderConfig, TableConfig

if TYPE_CHECKING:
    from cxrlab.core.records import Study
    from cxrlab.data.corpus import Corpus
    from cxrlab.data.sources.table import Understanding

_SHOWN_WORDS = 6


def import_table(table: Path, config: TableConfig, out: Path | None = None, dry_run: bool = False) -> Result:
    """Import a table of image paths and reports: CSV, TSV, Excel, JSON, JSONL, Parquet, or a Hugging Face data set.

    Without --columns nothing is written: the command shows what it understood of the columns, what is missing, the
    first studies, and the command line that imports the table like this; the exit code is then 1. Images are linked
    unless --copy is given. Run the command again to complete an interrupted import.

    Args:
        table: The file, or a folder of 'datasets.save_to_disk', of Parquet shards, or an imagefolder with metadata.
        out: Folder of the new corpus.
        dry_run: Show how the table is understood and write nothing; the exit code is 0.
    """
    from cxrlab.data.sources.table import import_table as run

    return _imported(*run(table, config, out, dry_run), dry_run)


def import_dicom(config: DicomFolderConfig, out: Path | None = None, dry_run: bool = False) -> Result:
    """Import a folder of DICOM images, grouped by study, with reports from a table or from structured reports.

    Files of any name are read; what is no radiograph is counted and left out. The identifiers of the headers become
    the ids of the corpus unless --pseudonyms is given. Images are linked unless --copy is given; 'data scrub' writes
    copies without identifying headers. Run the command again to complete an interrupted import.

    Args:
        out: Folder of the new corpus.
        dry_run: Show what would be imported and write nothing.
    """
    from cxrlab.data.sources.dicom_folder import import_dicom as run

    return _imported(*run(config, out, dry_run), dry_run)


def import_parquet(root: Path, out: Path, workers: int = 0) -> Result:
    """Make a corpus again from Parquet shards that 'cxrlab data export parquet' wrote, with the same studies and images.

    Images are written as files, since every command opens them by path. Run the command again to complete an interrupted
    import. Parquet files of other origin are imported by 'cxrlab data import table'.

    Args:
        root: Folder of the export, with card.yaml and data/.
        out: Folder of the new corpus.
        workers: Number of processes, at most one per core; 0 means one per core.
    """
    from cxrlab.data.parquet_shards import import_parquet as run

    corpus = run(root, out, workers)
    counts = ", ".join(f"{count:,} {what}" for what, count in corpus.card.counts.items())
    return Result(f"{corpus.path}: {counts}", {"path": corpus.path, "counts": corpus.card.counts})


def write_card(corpus: Path, config: CardConfig) -> Result:
    """Write the card of a corpus made by hand, or complete one: its studies are read in full and counted.

    A card that is there keeps what it says; flags replace single entries.

    Args:
        corpus: Folder with studies.jsonl.
    """
    from cxrlab.data.write_card import complete_card

    card = complete_card(corpus, config)
    counts = ", ".join(f"{count:,} {what}" for what, count in card.counts.items())
    return Result(f"{corpus}: {counts}\n{card.to_yaml().rstrip()}", card)


def _imported(understood: Understanding, corpus: Corpus | None, dry_run: bool) -> Result:
    data: dict[str, Any] = {
        "kind": understood.kind,
        "rows": understood.rows,
        "studies": understood.studies,
        "columns": understood.meaning.roles,
        "labels": understood.meaning.labels,
        "unused": understood.unused,
        "missing": understood.missing,
        "problems": understood.problems,
        "skipped": understood.skipped,
        "command": understood.command,
    }
    if corpus is None:
        return Result(_understood(understood), data, ok=dry_run)
    card = corpus.card
    text = f"{corpus.path}: " + ", ".join(f"{count:,} {what}" for what, count in card.counts.items())
    if card.remarks:
        text += f"\nremarks:\n{counted(card.remarks, '  ')}"
    text += f"\nNext: cxrlab data check {corpus.path}"
    return Result(text, {**data, "path": corpus.path, "counts": card.counts, "remarks": card.remarks})


def _understood(found: Understanding) -> str:
    """What was understood, for people; the words of reports appear here alone, a few of each."""
    lines = [f"{found.kind}: {found.rows:,} rows, {found.studies:,} studies"]
    roles = [
        [role, " + ".join(names), found.meaning.reasons.get(role, "")] for role, names in found.meaning.roles.items()
    ]
    if found.meaning.labels:
        roles.append(["labels", ", ".join(found.meaning.labels.values()), "by their names"])
    parts: list[tuple[str, list[list[str]]]] = [
        ("columns", roles),
        ("not used", [[", ".join(found.unused)]] if found.unused else []),
        ("skipped", [[f"{count:,}", what] for what, count in found.skipped.items()]),
        ("missing", [one.split(": ", 1) for one in found.missing]),
        (
            "the first studies",
            [["id", "patient", "split", "age", "sex", "images", "text"], *map(_study_row, found.first)],
        ),
        ("problems, which prevent the import", [[one] for one in found.problems]),
    ]
    lines += [f"{title}:\n{columns(rows, '  ')}" for title, rows in parts if rows]
    if found.command:
        lines.append(f"To import it like this:\n  {found.command}")
    return "\n".join(lines)


def _study_row(study: Study) -> list[str]:
    images = [str(image.view or "unknown view") for image in study.images]
    images += ["missing"] * len(study.absent_images or ())
    sections: Mapping[str, Any] = study.sections.to_json() if study.sections else {}
    texts = [f"{name}: {_cut(text)}" for name in ("findings", "impression") if (text := sections.get(name))]
    texts = texts or [_cut(study.report or "")]
    age = "" if study.age is None else f"{study.age:g}"
    cells = (study.id, study.patient, study.split or "none", age, study.sex or "", ", ".join(images), " | ".join(texts))
    return list(cells)


def _cut(text: str) -> str:
    """The first words on a terminal; elsewhere, as in a log, how many there are."""
    words = text.split()
    if not sys.stdout.isatty():
        return f"{len(words)} words" if words else ""
    return " ".join(words[:_SHOWN_WORDS]) + (f" … ({len(words)} words)" if len(words) > _SHOWN_WORDS else "")
