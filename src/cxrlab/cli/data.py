"""`cxrlab data`: make, import, compose, show, check and de-identify corpora."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.output import Result, columns, counted
from cxrlab.cli.plans import folder, planned
from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.files import unreadable
from cxrlab.core.plan import Plan, scratch_folder
from cxrlab.core.tables import output_width
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
    from cxrlab.data.corpus import Corpus
    from cxrlab.data.statistics import Quartiles, Statistics
    from cxrlab.models.llm_cache import CachedTextModel


def list_corpora(folder: Path | None = None) -> Result:
    """List the corpora that can be made or imported; with a folder, also the complete and the broken ones in it.

    Args:
        folder: A folder whose subfolders are corpora, or a corpus itself.
    """
    from cxrlab.cli.commands import COMMANDS
    from cxrlab.data.card import MAKERS
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.importing import IMPORTERS, dataset_info

    makers = {name: COMMANDS[f"data make {name}"].help for name in MAKERS}
    text = "can be made with 'cxrlab data make NAME':\n" + columns(list(makers.items()), "  ")
    importers = {name: dataset_info(IMPORTERS.load(name)) for name in IMPORTERS}
    rows = [[name, one.title.partition(":")[2].strip() or one.title] for name, one in importers.items()]
    text += "\ncan be imported with 'cxrlab data import NAME --root DIR':\n" + columns(rows, "  ")
    text += "\nyour own data: 'cxrlab data import table FILE', 'cxrlab data import dicom --root DIR'"
    text += "\nan exported corpus: 'cxrlab data import parquet --root DIR'"
    data: dict[str, object] = {"makers": makers, "importers": importers}
    if folder is None:
        return Result(text, data)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; name a folder.")
    if not folder.is_dir():
        raise unreadable(FileNotFoundError(2, "no such file"), folder)
    rows, entries = [], []
    for path in (folder, *sorted(entry for entry in folder.iterdir() if entry.is_dir())):
        if not os.path.lexists(path / "card.yaml"):
            continue
        try:
            card = load_corpus(path).card
        except CxrlabError as error:
            rows.append([str(path), "broken", str(error)])
            entries.append({"path": path, "problem": str(error)})
        else:
            rows.append([str(path), card.name, f"{card.counts.get('studies', '?')} studies"])
            entries.append({"path": path, "card": card})
    text += f"\nin {folder}:\n" + (columns(rows, "  ") or "  no complete corpus")
    return Result(text, {**data, "corpora": entries})


def make_phantom(config: PhantomConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Make a corpus of synthetic chest radiographs with reports, exact findings and masks.

    The same settings give the same bytes. Run the command again to complete an interrupted corpus.

    Args:
        plan: Draw a few studies, print time and disk of the whole corpus, and write nothing.
    """
    from cxrlab.data.phantom.corpus import make_phantom as make
    from cxrlab.data.phantom.corpus import plan_phantom

    if plan:
        return planned(plan_phantom(config, out))
    out = folder(out)
    return _made(make(config, out))


def make_scenes(config: ScenesConfig, out: Path | None = None, plan: bool = False) -> Result:
    """Make a corpus of captioned colour images without any chest.

    The same settings give the same bytes. Run the command again to complete an interrupted corpus.

    Args:
        plan: Draw a few scenes, print time and disk of the whole corpus, and write nothing.
    """
    from cxrlab.data.synthetic_scenes import make_scenes as make
    from cxrlab.data.synthetic_scenes import plan_scenes

    if plan:
        return planned(plan_scenes(config, out))
    out = folder(out)
    return _made(make(config, out))


def about(name: str) -> Result:
    """Describe a data set: contents, language, licence, how to obtain it, and its known defects.

    Args:
        name: The data set; 'cxrlab data ls' lists them.
    """
    from cxrlab.data.importing import IMPORTERS, dataset_info

    info = dataset_info(IMPORTERS.load(name))
    lines = [
        textwrap.fill(
            value, min(output_width() or 110, 110), initial_indent=f"  {key + ':':<10} ", subsequent_indent=" " * 13
        )
        for key, value in info.fields.items()
    ]
    return Result("\n".join([info.title, *lines]), {"name": name, "title": info.title, **info.fields})


def import_data(name: str, config: ImportConfig, out: Path) -> Result:
    """Convert a downloaded data set into a corpus: official splits, sections, labels and views; all irregularities counted.

    Images are linked, not copied, unless --copy is given. Run the command again to complete an interrupted import.
    notes.jsonl lists what is irregular about a study, or why it was left out. Data of your own are imported by 'cxrlab
    data import table' and 'cxrlab data import dicom'.

    Args:
        name: The data set; 'cxrlab data ls' lists them.
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
            text += f"\n{title}:\n{counted(tally, '  ')}"
    if before:
        text += "\nIt was complete before and is unchanged; to look for new images, delete the folder and import again."
    keys = ("counts", "dropped", "remarks", "absent")
    return Result(text, {"path": corpus.path, **{key: getattr(card, key) for key in keys}})


def export(layout: str, corpus: Path, out: Path, workers: int = 0, shard_mb: int | None = None) -> Result:
    """Write a corpus in the layout of a public data set, so that programs for that data set can read it, or as Parquet.

    Parquet shards hold images and reports as Hugging Face 'datasets' reads them: load_dataset(FOLDER), also with
    streaming. 'cxrlab data import parquet' makes the corpus from them again. Run the command again to complete an
    interrupted export.

    Args:
        layout: mimic-cxr, nih-cxr14 or parquet.
        corpus: Folder of the corpus.
        out: Folder to write; ids.csv in it maps the new ids to those of the corpus (parquet keeps the ids).
        workers: Number of processes, at most one per core; 0 means one per core.
        shard_mb: Size of a shard in MB; 512 when left out (parquet).
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.export import export_corpus

    if shard_mb is not None and layout != "parquet":
        raise ConfigError(f"--shard-mb {shard_mb} has no effect on {layout}; leave it out.")
    options = {} if shard_mb is None else {"shard_mb": shard_mb}
    folder = export_corpus(layout, load_corpus(corpus), out, workers, **options)
    return Result(str(folder), {"path": folder})


def show(corpus: Path, config: SheetConfig, out: Path) -> Result:
    """Draw a contact sheet: a grid of images, with what is known about each below it.

    Args:
        corpus: Folder of the corpus.
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


def check(corpus: Path, config: CheckConfig, out: Path | None = None) -> Result:
    """Find every defect of a corpus and compute its statistics; the exit code is 1 when there is a defect.

    Defects are unreadable images, malformed lines, patients in two splits, and text, splits or views that are missing
    although the card does not state it. Statistics are studies by split, view, sex, age and label, lengths of reports,
    duplicates, and sizes and grey values of images. With --out a data card with a contact sheet is written, one page
    that needs no network; it is as confidential as the corpus.

    Args:
        corpus: Folder of the corpus.
        out: Run folder for check.json, statistics.json, duplicates.json (with --duplicates), sheet.png and page.html;
            without it nothing is kept.
    """
    from cxrlab.data.check import check_corpus, write_data_card
    from cxrlab.render.page import write_page

    if out is None:
        found = check_corpus(corpus, config.workers, duplicates=config.duplicates)
    else:
        found = write_data_card(corpus, config, out)
    text = f"{found.table()}\n{statistics_text(found.statistics)}"
    data = {**found.to_json(), "statistics": found.statistics}
    if found.duplicates is not None:
        text += "\nthe duplicate reports and images are listed by --json, and in duplicates.json of --out"
        data["duplicates"] = found.duplicates
    if out is not None:
        data["page"] = write_page([out], title=f"Data card: {corpus.resolve().name}")
        text += f"\nwrote {data['page']}"
    return Result(text, data, ok=found.ok)


_LISTED_KINDS = 12


def scrub(source: Path, config: ScrubConfig, out: Path) -> Result:
    """Find what may identify a patient in images before they are exported: headers, notes, and burned-in text.

    Every DICOM, PNG and JPEG file of a corpus or folder is read. RUN/scrub.jsonl lists header elements by keyword and
    boxes of text, never a value. With --blank, copies with new headers and blanked text go to RUN/cleaned; nothing is
    changed in place. The exit code is 1 when an image could not be examined or cleaned; such an image is not copied.

    Args:
        source: A corpus, a folder or one image.
    """
    from cxrlab.data.deidentify_folder import run_scrub

    found = run_scrub(source, config, out)
    states = ", ".join(f"{count:,} {state}" for state, count in found.states.items())
    rows = [
        ["images with burned-in text", f"{found.with_text:,}"],
        ["images with a side marker", f"{found.with_markers:,}"],
        ["headers that declare burned-in text", f"{found.burned_in:,}"],
        ["headers with private elements", f"{found.private:,}"],
    ]
    lines = [f"{found.files:,} files: {states or 'none'}", columns(rows, "  ")]
    for title, tally in (("elements that may identify (files)", found.tags), ("not done", found.reasons)):
        if tally:
            lines.append(f"{title}:\n" + counted(dict(list(tally.items())[:_LISTED_KINDS]), "  "))
        if len(tally) > _LISTED_KINDS:
            lines.append(f"  and {len(tally) - _LISTED_KINDS} more kinds in {out / 'summary.json'}")
    if found.cleaned is not None:
        lines.append(f"copies in {found.cleaned}; look at them before you pass them on")
    return Result("\n".join(lines), found, ok=found.ok)


def statistics_text(numbers: Statistics) -> str:
    """The statistics of a corpus in a few lines; the rest is in the JSON form."""
    from cxrlab.data.statistics import USABLE

    images, usable = numbers.images, []
    for split in dict.fromkeys(split for row in numbers.usable.values() for split in row if split != "all"):
        counts = {name: row[split] for name, row in numbers.usable.items() if split in row}
        taken = counts.pop(USABLE, 0)
        reasons = f" ({_counts(counts)})" if counts else ""
        usable.append(f"{split} {taken:,} of {taken + sum(counts.values()):,}{reasons}")
    repeats = []
    for kind, row in numbers.repeats.items():
        groups = f"{row.groups:,} with {row.members:,} members, {row.across_splits:,} across splits"
        repeats.append([f"{kind}, groups", groups if row.groups else "0"])
    rows = [
        ["views", _counts({name: row["all"] for name, row in numbers.views.items()})],
        ["usable by default", ", ".join(usable)],
        ["sex", _counts({name: row["all"] for name, row in numbers.sexes.items()})],
        ["age", _counts({name: row["all"] for name, row in numbers.ages.items()})],
        ["labels", f"{len(numbers.labels)} CheXpert, {len(numbers.own_labels)} of its own"],
        *([f"{kind}, words", _spread(row)] for kind, row in numbers.texts.items()),
        ["masked words", _counts(numbers.masked)],
        ["image width", _spread(images.width)],
        ["image height", _spread(images.height)],
        ["mean grey", _spread(images.mean_grey)],
        ["images that look unusual", _counts({name: count for name, count in images.suspects.items() if count})],
        ["images not in the folder", f"{numbers.absent_images:,}" if numbers.absent_images else ""],
        *repeats,
        ["left out by the import", _counts(numbers.dropped)],
        ["remarks of the import", _counts(numbers.remarks)],
    ]
    return columns([row for row in rows if row[1]] if sum(numbers.splits.values()) else [], "  ")


def _counts(tally: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in tally.items())


def _spread(numbers: Quartiles | None) -> str:
    if numbers is None:
        return ""
    if numbers.least == numbers.most:
        return f"{numbers.least:,g} (n {numbers.n:,})"
    quartiles = " / ".join(f"{value:,g}" for value in (numbers.first, numbers.median, numbers.third))
    return f"{numbers.least:,g} to {numbers.most:,g}, quartiles {quartiles} (n {numbers.n:,})"


def compose(config: ComposeConfig, out: Path | None = None, dry_run: bool = False) -> Result:
    """Merge corpora, or parts of them, into one: a tree of filters and subsets, with a table of what was taken.

    Images are linked. A patient in two splits is an error. Run the command again to complete an interrupted
    composition.

    Args:
        dry_run: Print the tree and the table, write nothing.
    """
    from cxrlab.data.compose import as_text, compose_corpus, plan

    if out is None and not dry_run:
        raise ConfigError("--out is missing; name the folder of the new corpus, or give --dry-run to write nothing.")
    composition = plan(config)
    text = "\n".join([*composition.lines, "", as_text(composition.rows), *composition.notes])
    data: dict[str, object] = {"tree": composition.lines, "table": composition.rows, "notes": composition.notes}
    data["path"] = None
    if out is not None and not dry_run:
        corpus = compose_corpus(composition, out)
        text += f"\n\n{len(composition.seen.ids):,} studies in {corpus.path}"
        data |= {"path": corpus.path, "counts": corpus.card.counts, "remarks": corpus.card.remarks}
    return Result(text, data)


def structure(
    corpus: Path,
    config: StructureConfig,
    out: Path | None = None,
    write_requests: Path | None = None,
    read_answers: tuple[Path, ...] = (),
    plan: bool = False,
) -> Result:
    """Write a corpus with structured text beside the source's: four sections about one image, nothing invented.

    Demographics, history and comparisons are removed, changes are restated as current findings, and findings move out
    of a merged impression. The findings reader checks every text: with --mode strict one that states more or less than
    its source is requested again and finally made by rules, with --mode flag it is kept and its doubts are recorded.
    Studies of the test split pass unchanged. Run the command again to complete an interrupted run.

    Args:
        corpus: Folder of the source corpus; it is not changed.
        out: Folder of the new corpus; images are linked.
        write_requests: Send nothing; write the requests that have no answer yet to this file, for a batch endpoint
            (OpenAI's batch JSONL).
        read_answers: Send nothing; take answers from these output files of a batch endpoint.
        plan: Time a few reports by rules, or count the requests of a model with tokens and price; write and send nothing.
    """
    from cxrlab.data.corpus import load_corpus
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import structure_corpus, write_open_requests

    source = load_corpus(corpus)
    if plan:
        return planned(_structuring_plan(source, config))
    out = folder(out)
    if config.model == RULES:
        if write_requests or read_answers:
            raise ConfigError(
                "--model rules sends no requests; name a language model, as in --model http://HOST/v1#MODEL."
            )
        return _structured(structure_corpus(source, config, out))
    from cxrlab.evaluation.load_model import open_text_model

    with open_text_model(config.model, config.llm, [source.egress_data], out) as model:
        if write_requests or read_answers:
            if read_answers:
                model.read_batch(read_answers)
            unanswered = write_open_requests(source, config, out, model, write_requests)
            about = model.batch_problems()
            if unanswered and write_requests:
                text = f"{unanswered:,} requests in {write_requests}; then repeat the command with --read-answers FILE"
                return Result(f"{about}{text}", {"path": None, "requests": unanswered, "file": write_requests})
            if unanswered:
                raise RunError(
                    f"{about}{unanswered:,} requests have no answer yet; the answers so far are kept. Give --write-requests "
                    "FILE for another batch, or repeat the command without --read-answers to send them."
                )
        return _structured(structure_corpus(source, config, out, model), model)


def _structuring_plan(source: Corpus, config: StructureConfig) -> Plan:
    from cxrlab.data.structuring.rules import RULES
    from cxrlab.data.structuring.run import plan_structuring, write_open_requests
    from cxrlab.evaluation.counted_requests import NOTE, CountedModels

    if config.model == RULES:
        return Plan("data structure", (plan_structuring(source, config),), left_out=("writing the corpus.",))
    models = CountedModels(config.llm, [source.egress_data])
    with scratch_folder() as scratch:
        write_open_requests(source, config, scratch / "corpus", models(config.model))
    return Plan("data structure", tuple(models.work()), left_out=(NOTE,))


def _structured(done: Corpus, model: CachedTextModel | None = None) -> Result:
    """The counts of the card and, with a model, the number and cost of its answers."""
    card = done.card
    text = f"{done.path}: {card.counts.get('studies', 0):,} studies"
    if card.remarks:
        text += f"\n{counted(card.remarks, '  ')}"
    data: dict[str, object] = {"path": done.path, "counts": card.counts, "remarks": card.remarks}
    if model is not None:
        model.recall()  # the answers of a corpus that was finished before
        budget = model.budget
        text += (
            f"\n{model.paid:,} answers paid for, {model.found:,} found: {budget.prompt_tokens:,} prompt tokens, "
            f"{budget.answer_tokens:,} generated tokens, cost {budget.spent:.4f}"
        )
        spent = {"prompt_tokens": budget.prompt_tokens, "answer_tokens": budget.answer_tokens, "cost": budget.spent}
        data |= {"paid": model.paid, "found": model.found, **spent}
    return Result(text, data)
