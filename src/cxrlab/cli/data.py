"""`cxrlab data …`: make corpora, look at them, check them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.result import Result, columns
from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.files import unreadable
from cxrlab.data.config import PhantomConfig, ScenesConfig, SheetConfig

if TYPE_CHECKING:
    from cxrlab.data.corpus import Corpus


def list_corpora(folder: Path | None = None) -> Result:
    """List the corpora that can be made and, with a folder, the complete and the broken ones in it.

    Args:
        folder: A folder whose subfolders are corpora, or a corpus itself.
    """
    from cxrlab.cli.commands import COMMANDS
    from cxrlab.data.makers import MAKERS

    makers = {name: COMMANDS[f"data make {name}"].help for name in MAKERS}
    text = "can be made with 'cxrlab data make NAME':\n" + columns(list(makers.items()), "  ")
    data: dict[str, object] = {"makers": makers}
    if folder is not None:
        found = [_look(path) for path in _corpora(folder)]
        text += f"\nin {folder}:\n" + (columns([row for row, _ in found], "  ") or "  no complete corpus")
        data["corpora"] = [entry for _, entry in found]
    return Result(text, data)


def make_phantom(config: PhantomConfig, out: Path) -> Result:
    """Make a corpus of synthetic chest films with reports, exact findings and masks.

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


def show(corpus: Path, config: SheetConfig, out: Path) -> Result:
    """Draw a contact sheet: films in a grid, with what is known of each beneath.

    Args:
        corpus: Folder of the corpus.
        config: Settings.
        out: The PNG file to write.
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.sheet import contact_sheet

    sheet = contact_sheet(load_corpus(corpus), config, out)
    return Result(f"wrote {sheet}", {"path": sheet.path, "shown": sheet.shown, "unreadable": sheet.unreadable})


def check(corpus: Path, workers: int = 0) -> Result:
    """Look for every defect of a corpus: unreadable images, malformed lines, leaking patients and more.

    Args:
        corpus: Folder of the corpus.
        workers: Processes; 0 means one for each core.
    """
    from cxrlab.data.check import check_corpus

    found = check_corpus(corpus, workers)
    return Result(found.table(), found.to_json(), ok=found.ok)


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
