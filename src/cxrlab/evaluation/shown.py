"""Whether reports that a judge is going to be shown may be a patient's; see `core.egress`."""

from __future__ import annotations

from pathlib import Path

from cxrlab.core.egress import Shown
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import SUMMARY

_RETRIEVAL = "retrieval:"


def shown_reports(source: Path, about: Shown) -> Shown:
    """Reports that a model wrote.

    In a run folder they are what its corpus is, unless they were copied from another one; a file may hold anything.

    Args:
        source: Run folder or file.
        about: The corpus that they were written about.
    """
    return Shown(str(source), about.synthetic and source.is_dir() and _copied_from_none(source))


def _copied_from_none(run: Path) -> bool:
    """Whether a run says which model wrote its reports, and none was looked up among those of patients."""
    try:
        summary = read_json(run / SUMMARY)
        model = str(summary.get("model") or "") if isinstance(summary, dict) else ""
        if model.startswith(_RETRIEVAL):
            return load_corpus(model.removeprefix(_RETRIEVAL)).card.synthetic
    except DataError:  # there is no summary, or the corpus is gone: nobody can say
        return False
    return bool(model)
