"""One self-contained HTML file from run folders."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.files import write_text
from cxrlab.core.registry import Registry
from cxrlab.render.components import Cell, readable
from cxrlab.render.drawing import Drawing
from cxrlab.render.run_folder import RunFolder, read_runs

PAGE = "page.html"
# In the order of the page. The function of a row takes run folders and returns what templates/NAME.html shows (`content`);
# a section for which it returns nothing is left out.
SECTIONS = Registry(
    "section of a page",
    {
        "unfinished": "cxrlab.render.overview:unfinished",
        "certificate": "cxrlab.render.certificate:certificates",
        "corpus": "cxrlab.render.overview:corpus",
        "imported": "cxrlab.render.overview:imported",
        "ablations": "cxrlab.render.ablations:ablations",
        "two_texts": "cxrlab.render.ablations:two_texts",
        "alignment_seeds": "cxrlab.render.alignment:alignment_seeds",
        "robustness_seeds": "cxrlab.render.robustness_seeds:robustness_seeds",
        "extraction_seeds": "cxrlab.render.extraction:extraction_seeds",
        "models": "cxrlab.render.overview:models",
        "trainings": "cxrlab.render.training:trainings",
        "others": "cxrlab.render.overview:others",
        "scores": "cxrlab.render.scores:scores",
        "observations": "cxrlab.render.factuality:observations",
        "model_sizes": "cxrlab.render.factuality:model_sizes",
        "image_dependence": "cxrlab.render.scores:image_dependence",
        "alignment": "cxrlab.render.alignment:alignment",
        "robustness": "cxrlab.render.robustness:robustness",
        "extraction": "cxrlab.render.extraction:extraction",
        "detection": "cxrlab.render.extraction_protection:detection",
        "defences": "cxrlab.render.extraction_protection:defences",
        "served": "cxrlab.render.extraction_protection:served",
        "retrieval": "cxrlab.render.retrieval_and_saliency:retrieval",
        "pointing": "cxrlab.render.retrieval_and_saliency:pointing",
        "explanations": "cxrlab.render.retrieval_and_saliency:explanations",
        "comparison": "cxrlab.render.scores:comparison",
        "errors": "cxrlab.render.scores:errors",
        "slices": "cxrlab.render.scores:slices",
        "marked_reports": "cxrlab.render.scores:marked_reports",
        "validation": "cxrlab.render.scores:validation",
        "examples": "cxrlab.render.overview:examples",
        "contact_sheet": "cxrlab.render.overview:contact_sheet",
        "findings": "cxrlab.render.overview:findings",
        "data_card": "cxrlab.render.data_card:data_cards",
        "chain": "cxrlab.render.overview:chain",
        "steps": "cxrlab.render.overview:steps",
        "provenance": "cxrlab.render.overview:provenance",
    },
)


def write_page(
    runs: Sequence[Path], out: Path | None = None, title: str = "Chest X-ray reports", *, allow_unfinished: bool = False
) -> Path:
    """Write one HTML file that shows these runs; it needs no network and no script.

    An unfinished run, or one with nothing to show, is listed at the top of the page with the command that finishes it,
    and the exit code is 1 (`RunError`).

    Args:
        runs: Run folders in the order of the page; a study of several runs is shown side by side.
        out: The file; page.html in the first run folder when left out.
        title: Heading of the page.
        allow_unfinished: Exit with 0 although a run is unfinished; the page lists it all the same.
    """
    if not runs:
        raise ConfigError("a page needs at least one run folder; for example: cxrlab page runs/normal.")
    folders = read_runs([Path(run) for run in runs])
    page = write_text(out if out is not None else Path(runs[0]) / PAGE, render_page(folders, title))
    incomplete = [run for run in folders if run.why_incomplete]
    if incomplete and not allow_unfinished:
        named = "; ".join(f"{run.path}: {run.why_incomplete}" for run in incomplete)
        raise RunError(
            f"{page} was written, but with {len(incomplete)} of {len(folders)} runs unfinished ({named}). Finish each "
            "with the command that the page gives, or give 'cxrlab page' --allow-unfinished."
        )
    return page


def render_page(runs: Sequence[RunFolder], title: str) -> str:
    """The text of the page."""
    lead = next((run.summary["about"] for run in runs if run.summary.get("about")), None)
    found = [(f"{name}.html", SECTIONS.load(name)(runs)) for name in SECTIONS]
    return render_template(
        "page.html",
        title=title,
        lead=lead or ", ".join(run.name for run in runs),
        sections=[(template, content) for template, content in found if content],
    )


def svg_file(drawing: Drawing) -> str:
    """A drawing as an SVG file of its own."""
    return render_template("drawing.svg", drawing=drawing)


def render_template(template: str, **values: Any) -> str:
    """Fill in a template of this package."""
    return templates().get_template(template).render(**values)


@functools.cache
def templates() -> Environment:
    """Templates in which every value is escaped, and written as `readable`."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, str) else readable(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["cell"] = lambda value: isinstance(value, Cell)
    environment.filters["width"] = lambda share: f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    return environment
