"""`cxrlab data …`: make corpora, look at them, check them."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.result import Result, columns
from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.files import unreadable
from cxrlab.data.config import ImportConfig, PhantomConfig, ScenesConfig, SheetConfig

if TYPE_CHECKING:
    from cxrlab.data.corpus import Corpus


def list_corpora(folder: Path | None = None) -> Result:
    """List the corpora that can be made and, with a folder, the complete and the broken ones in it.

    Args:
        folder: A folder whose subfolders are corpora, or a corpus itself.
    """
    from cxrlab.cli.commands import COMMANDS
    from cxrlab.data.importing import about
    from cxrlab.data.registry import IMPORTERS, MAKERS

    makers = {name: COMMANDS[f"data make {name}"].help for name in MAKERS}
    text = "can be made with 'cxrlab data make NAME':\n" + columns(list(makers.items()), "  ")
    told = {name: about(IMPORTERS.load(name)) for name in IMPORTERS}
    rows = [[name, one.title.partition(":")[2].strip() or one.title] for name, one in told.items()]
    text += "\ncan be imported with 'cxrlab data import NAME --root DIR':\n" + columns(rows, "  ")
    data: dict[str, object] = {"makers": makers, "importers": told}
    if folder is not None:
        found = [_look(path) for path in _corpora(folder)]
        text += f"\nin {folder}:\n" + (columns([row for row, _ in found], "  ") or "  no complete corpus")
        data["corpora"] = [entry for _, entry in found]
    return Result(text, data)


def make_phantom(config: PhantomConfig, out: Path) -> Result:
    """Make a corpus of synthetic chest radiographs with reports, exact findings and masks.

    The same settings give the same bytes. An interrupted corpus is completed by running the command again.

    Args:
        config: Settings.
        out: Folder of the corpus.
    """
    from cxrlab.data.phantom.corpus import make_phantom as make

    return _made(make(config, out))


def make_scenes(config: ScenesConfig, out: Path) -> Result:
    """Make a corpus of captioned colour pictures without any chest.

    The same settings give the same bytes. An interrupted corpus is completed by running the command again.

    Args:
        config: Settings.
        out: Folder of the corpus.
    """
    from cxrlab.data.scenes import make_scenes as make

    return _made(make(config, out))


def tell_about(name: str) -> Result:
    """Say what a data set holds, in which language, under which licence, how to obtain it and what is wrong with it.

    Args:
        name: The data set; 'cxrlab data ls' lists them.
    """
    from cxrlab.data.importing import about
    from cxrlab.data.registry import IMPORTERS

    told = about(IMPORTERS.load(name))
    lines = [
        textwrap.fill(value, 110, initial_indent=f"  {key + ':':<10} ", subsequent_indent=" " * 13)
        for key, value in told.fields.items()
    ]
    return Result("\n".join([told.title, *lines]), {"name": name, "title": told.title, **told.fields})


def import_data(name: str, config: ImportConfig, out: Path) -> Result:
    """Turn a downloaded data set into a corpus: official splits, sections, labels, views; every oddity counted.

    Images are linked, not copied, unless --copy. An interrupted import is completed by running the command again. What
    is odd about a study, or why it was left out, stands in notes.jsonl beside the studies.

    Args:
        name: The data set; 'cxrlab data ls' lists them.
        config: Settings.
        out: Folder of the corpus.
    """
    from cxrlab.data.card import CARD
    from cxrlab.data.check import LACKS
    from cxrlab.data.importing import import_corpus

    before = (out / CARD).is_file()
    corpus = import_corpus(name, config, out)
    card = corpus.card
    counts = ", ".join(f"{count:,} {what}" for what, count in card.counts.items())
    absent = {LACKS[lack][0]: n for lack, n in (card.absent or {}).items() if lack in LACKS}
    text = f"{corpus.path}: {counts} (layout: {card.settings.get('layout')})"
    for title, tally in (("left out", card.dropped), ("remarks", card.remarks), ("absent in the source", absent)):
        if tally:
            text += f"\n{title}:\n" + columns([[f"{n:,}", what] for what, n in tally.items()], "  ")
    if before:
        text += (
            "\nIt was complete before and nothing was done; to look for new images, delete the folder and import again."
        )
    data = {
        "path": corpus.path,
        "counts": card.counts,
        "dropped": card.dropped,
        "remarks": card.remarks,
        "absent": card.absent,
    }
    return Result(text, data)


def export(layout: str, corpus: Path, out: Path, workers: int = 0) -> Result:
    """Write a corpus in the layout of a public data set, so that what was built for that one can be tried on it.

    Args:
        layout: mimic-cxr or nih-cxr14.
        corpus: Folder of the corpus.
        out: Folder to write; ids.csv in it leads back to the corpus's names.
        workers: Processes; 0 means one per core, the most there can be.
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.exporting import export_corpus

    folder = export_corpus(layout, load_corpus(corpus), out, workers)
    return Result(str(folder), {"path": folder})


def show(corpus: Path, config: SheetConfig, out: Path) -> Result:
    """Draw a contact sheet: images in a grid, with what is known of each beneath.

    Args:
        corpus: Folder of the corpus.
        config: Settings.
        out: The PNG file to write.
    """
    from cxrlab.data.contact_sheet import contact_sheet
    from cxrlab.data.corpus import load_corpus

    sheet = contact_sheet(load_corpus(corpus), config, out)
    return Result(f"wrote {sheet}", {"path": sheet.path, "shown": sheet.shown, "unreadable": sheet.unreadable})


def _made(corpus: Corpus) -> Result:
    counts = dict(corpus.card.counts)
    studies = counts.get("studies", len(corpus))
    return Result(f"{studies} studies in {corpus.path}", {"path": corpus.path, "counts": counts})


def _corpora(folder: Path) -> list[Path]:
    """The folder itself and those in it, as far as they have a card."""
    if not folder.is_dir():
        if folder.exists():
            raise DataError(f"{folder} is a file; name a folder.")
        raise unreadable(FileNotFoundError(2, "no such file"), folder)
    candidates = [folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())]
    return [path for path in candidates if os.path.lexists(path / "card.yaml")]


def _look(path: Path) -> tuple[list[str], dict[str, object]]:
    """One corpus as a row for people and an entry for programs; a broken one with its defect."""
    from cxrlab.data.corpus import load_corpus

    try:
        card = load_corpus(path).card
    except CxrlabError as error:
        return [str(path), "broken", str(error)], {"path": path, "problem": str(error)}
    return [str(path), card.name, f"{card.counts.get('studies', '?')} studies"], {"path": path, "card": card}
