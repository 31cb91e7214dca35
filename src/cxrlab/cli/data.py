"""`cxrlab data …`: make corpora, look at them, check them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.output import Result, columns
from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.files import unreadable
from cxrlab.data.config import (
    CheckConfig,
    ComposeConfig,
    ImportConfig,
    PhantomConfig,
    ScenesConfig,
    ScrubConfig,
    SheetConfig,
    StructureConfig,
)

if TYPE_CHECKING:
    from cxrlab.data.check import CheckReport
    from cxrlab.data.corpus import Corpus
    from cxrlab.data.scrub import ScrubReport
    from cxrlab.data.statistics import Quartiles, Statistics
    from cxrlab.models.text_model_cache import CachedTextModel


def list_corpora(folder: Path | None = None) -> Result:
    """List the corpora that can be made and, with a folder, the complete and the broken ones in it.

    Args:
        folder: A folder whose subfolders are corpora, or a corpus itself.
    """
    from cxrlab.cli.commands import COMMANDS
    from cxrlab.data.card import MAKERS
    from cxrlab.data.importing import IMPORTERS, dataset_info

    makers = {name: COMMANDS[f"data make {name}"].help for name in MAKERS}
    text = "can be made with 'cxrlab data make NAME':\n" + columns(list(makers.items()), "  ")
    told = {name: dataset_info(IMPORTERS.load(name)) for name in IMPORTERS}
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
    from cxrlab.data.importing import IMPORTERS, dataset_info

    told = dataset_info(IMPORTERS.load(name))
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
    from cxrlab.data.card import CARD, LACKS
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
    from cxrlab.data.export import export_corpus

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
    from cxrlab.data.scrub import run_scrub

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


def compose(config: ComposeConfig, out: Path | None = None, dry_run: bool = False) -> Result:
    """Merge corpora, or parts of them, into one: filters and subsets as a tree, with a table of what was taken.

    Images are reached through links. A patient in two splits is an error. An interrupted composition is completed by
    running the command again.

    Args:
        config: Settings.
        out: Folder of the new corpus.
        dry_run: Print the tree and the table, write nothing.
    """
    from cxrlab.data.compose import as_text, compose_corpus, plan

    if out is None and not dry_run:
        raise ConfigError("--out is missing; name the folder of the new corpus, or give --dry-run to look first.")
    composition = plan(config)
    text = "\n".join([*composition.lines, "", as_text(composition.rows), *composition.notes])
    data: dict[str, object] = {
        "tree": composition.lines,
        "table": composition.rows,
        "notes": composition.notes,
        "path": None,
    }
    if out is not None and not dry_run:
        corpus = compose_corpus(composition, out)
        text += f"\n\n{len(composition.seen.ids):,} studies in {corpus.path}"
        data |= {"path": corpus.path, "counts": corpus.card.counts, "remarks": corpus.card.remarks}
    return Result(text, data)


def structure(corpus: Path, config: StructureConfig, out: Path) -> Result:
    """Write a corpus with structured text beside the source's: four sections about one image, nothing invented.

    Demographics, history and comparisons go, what changed is told as it is now, findings move out of a merged
    impression. The findings reader checks every text; one that says more or less than its source is asked for again
    and at last made by rule. Studies of the test split pass unchanged. A stopped run is completed by running the
    command again.

    Args:
        corpus: Folder of the corpus to structure; it is left as it is.
        config: Settings.
        out: Folder of the new corpus; images are reached through links.
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import structure_corpus

    source = load_corpus(corpus)
    if config.model == RULES:
        return _structured(structure_corpus(source, config, out))
    from cxrlab.evaluation.open_models import open_text_model

    with open_text_model(config.model, config.llm, [source.egress_data], out) as model:
        return _structured(structure_corpus(source, config, out, model), model)


def _structured(done: Corpus, model: CachedTextModel | None = None) -> Result:
    """What the card counts and what the answers of a model cost."""
    card = done.card
    text = f"{done.path}: {card.counts.get('studies', 0):,} studies"
    if card.remarks:
        text += "\n" + columns([[f"{count:,}", what] for what, count in card.remarks.items()], "  ")
    data: dict[str, object] = {"path": done.path, "counts": card.counts, "remarks": card.remarks}
    if model is not None:
        model.recall()  # of a corpus that was finished before
        budget = model.budget
        text += (
            f"\n{model.paid:,} answers paid for, {model.found:,} found: {budget.prompt_tokens:,} tokens asked, "
            f"{budget.answer_tokens:,} answered, cost {budget.spent:.4f}"
        )
        spent = {"prompt_tokens": budget.prompt_tokens, "answer_tokens": budget.answer_tokens, "cost": budget.spent}
        data |= {"paid": model.paid, "found": model.found, **spent}
    return Result(text, data)
