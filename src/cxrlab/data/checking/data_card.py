"""A corpus checked and counted into a run folder, from which a page is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.runs import Run
from cxrlab.data.card import CARD, read_card
from cxrlab.data.checking.check import CheckReport, check_corpus
from cxrlab.data.config import CheckConfig, SheetConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.sheet import contact_sheet

CHECK, STATISTICS, SHEET, SUMMARY = "check.json", "statistics.json", "sheet.png", "summary.json"
DUPLICATES = "duplicates.json"


def write_data_card(corpus: Path, config: CheckConfig, out: Path) -> CheckReport:
    """Check a corpus and keep what was found: check.json, statistics.json, summary.json and a sheet of images.

    With `config.duplicates` every group of repeated reports and images stands in duplicates.json.
    """
    settings = {"corpus": str(corpus), "duplicates": config.duplicates, "images": config.images}
    with Run.open(out, {**settings, "workers": config.workers}, seed=config.seed, free=("workers",)) as run:
        found = check_corpus(corpus, config.workers, duplicates=config.duplicates)
        run.write(CHECK, found.to_json())
        run.write(STATISTICS, found.statistics)
        if found.duplicates is not None:
            run.write(DUPLICATES, found.duplicates)
        if found.images:
            _draw_sheet(corpus, config, run)
        run.write(SUMMARY, _summary(corpus, found))
    return found


def _draw_sheet(corpus: Path, config: CheckConfig, run: Run) -> None:
    """A sheet of images for the page; a corpus that cannot be opened has none, and the check has said why."""
    sheet = SheetConfig(n=config.images, columns=6, seed=config.seed, size=200)
    try:
        contact_sheet(load_corpus(corpus), sheet, run.path(SHEET))
    except DataError:
        return


def _summary(corpus: Path, found: CheckReport) -> dict[str, Any]:
    """What a page says first: the card and the counts."""
    counts = {"studies": found.studies, "patients": found.patients, "images": found.images}
    try:
        card = read_card(corpus / CARD)
    except CxrlabError:  # a missing or malformed card is among the defects
        about = {"name": corpus.resolve().name}
    else:
        about = {
            "name": card.name,
            "source": card.source,
            "licence": card.licence,
            "citation": card.citation,
            "collections": ", ".join(card.collections),
        }
    return {"corpus": {**about, "counts": {**counts, **found.splits}}, "check": found.to_json()}
