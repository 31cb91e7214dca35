"""One self-contained HTML file from run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.files import write_text
from cxrlab.render import (
    aligned,
    aligned_seeds,
    data_card,
    defence,
    detection,
    explained,
    extraction,
    extraction_seeds,
    image_dependence,
    marked,
    retrieved,
    robustness,
    robustness_seeds,
    scores,
    sections,
    served,
    studies,
    validation,
)
from cxrlab.render.folder import RunFolder, read_runs
from cxrlab.render.html import text
from cxrlab.render.style import CSS

PAGE = "page.html"
# What the browser may do with the file, whatever stands in it: show inline pictures and styles, nothing else.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_SECTIONS = (
    sections.unfinished,
    sections.corpus,
    sections.imported,
    studies.ablations,
    studies.texts,
    aligned_seeds.aligned_seeds,
    robustness_seeds.robustness_seeds,
    extraction_seeds.extraction_seeds,
    sections.models,
    sections.others,
    scores.scores,
    image_dependence.image_dependence,
    aligned.aligned,
    robustness.robustness,
    extraction.extraction,
    detection.detection,
    defence.defence,
    served.served,
    retrieved.retrieved,
    explained.pointing,
    explained.explained,
    scores.comparison,
    scores.errors,
    scores.slices,
    marked.marked,
    validation.validation,
    sections.examples,
    sections.sheet,
    sections.findings,
    data_card.data_card,
    sections.chain,
    sections.steps,
    sections.provenance,
)


def write_page(
    runs: Sequence[Path],
    out: Path | None = None,
    title: str = "Chest X-ray reports",
    *,
    allow_unfinished: bool = False,
) -> Path:
    """Write one HTML file that shows these runs; it needs no network and no script.

    A run that is unfinished, or that holds nothing to show, is listed at the top of the page with the command that
    finishes it, and the exit code is 1.

    Args:
        runs: Run folders, the most telling first; the same study in several is shown side by side.
        out: The file; page.html in the first run folder when left out.
        title: Heading of the page.
        allow_unfinished: Exit with 0 although a run is unfinished; the page lists it all the same.

    Raises:
        RunError: When a run is unfinished and this is not allowed; the page is written all the same.
    """
    if not runs:
        raise ConfigError("a page needs at least one run folder; for example: cxrlab page runs/normal.")
    folders = read_runs([Path(run) for run in runs])
    page = write_text(out if out is not None else Path(runs[0]) / PAGE, render(folders, title))
    lacking = [run for run in folders if run.lacks]
    if lacking and not allow_unfinished:
        named = "; ".join(f"{run.path}: {run.lacks}" for run in lacking)
        raise RunError(
            f"{page} was written, but with {len(lacking)} of {len(folders)} runs unfinished ({named}). Finish each "
            "with the command that the page gives, or give 'cxrlab page' --allow-unfinished."
        )
    return page


def render(runs: Sequence[RunFolder], title: str) -> str:
    """The text of the page."""
    about = next((run.summary["about"] for run in runs if run.summary.get("about")), None)
    lead = about or ", ".join(run.name for run in runs)
    body = "".join(make(runs) for make in _SECTIONS)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{text(title)}</h1><p class=lead>{text(lead)}</p></header>\n"
        f"{body}\n<footer>Written by cxrlab from run folders. Not for use in the care of patients.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )
