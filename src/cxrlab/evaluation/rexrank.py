"""The JSON of the leaderboard ReXrank: read its predictions, and write predictions in its form.

A file is one object, study id → `section_findings`, `section_impression`, `report` ("Findings: … Impression: …"),
`context`, `image_path`, `key_image_path`, `frontal_lateral`, `split`, and, in predictions, `model_prediction`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_text, write_text
from cxrlab.core.json_values import InvalidJson, dumps, loads
from cxrlab.core.records import Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.views import FRONTAL

PREDICTION = "model_prediction"
_SECTIONS = re.compile(r"\s*findings\s*:(?P<findings>.*?)(?:\bimpression\s*:(?P<impression>.*))?\Z", re.I | re.S)
_IMPRESSION = re.compile(r"\s*impression\s*:(?P<impression>.*)\Z", re.I | re.S)


def select_sections(prediction: str | None, sections: Sequence[str]) -> str | None:
    """The wanted sections of "Findings: … Impression: …"; a text without these headings as it is."""
    found = _SECTIONS.match(prediction or "") or _IMPRESSION.match(prediction or "")
    if found is None or not sections:
        return prediction
    parts = [(found.groupdict().get(name) or "").strip() for name in sections]
    return " ".join(part for part in parts if part)


def write_rexrank(path: Path, references: Path, predictions: Mapping[str, str | None]) -> None:
    """Write predictions beside the references of a corpus, or of a JSON in ReXrank's form.

    Args:
        references: Corpus folder or JSON.
        predictions: Study id → report; a missing one is written as an empty text.
    """
    studies = _studies(references)
    if unknown := [key for key in predictions if key not in studies]:
        raise ConfigError(
            f"'{unknown[0]}' is no study of {references}; --write-rexrank takes predictions for whole studies."
        )
    content = {key: {**studies[key], PREDICTION: report or ""} for key, report in predictions.items()}
    write_text(path, dumps(content, indent=4) + "\n")


def _studies(references: Path) -> dict[str, dict[str, Any]]:
    """Study id → its entry without a prediction."""
    if (references / STUDIES).is_file():
        return {study.id: _entry(study) for study in load_corpus(references).studies()}
    content = None
    if references.suffix.lower() == ".json":
        try:
            content = loads(read_text(references), undefined=True)
        except InvalidJson as error:
            raise DataError(f"{references} is not valid JSON ({error}); correct it, or make the file again.") from None
    if not isinstance(content, dict) or not all(
        isinstance(entry, dict) and {"section_findings", "findings"} & entry.keys() for entry in content.values()
    ):
        raise ConfigError(
            f"--write-rexrank needs both sections of the references, which {references} does not give; name a corpus "
            "folder, or a JSON of ReXrank with 'section_findings' for each study."
        )
    return content


def _entry(study: Study) -> dict[str, Any]:
    report = study.sections or Report()
    known = {
        "Age": None if study.age is None else f"{study.age:g}",
        "Gender": study.sex,
        "Indication": report.indication,
        "Comparison": report.comparison,
    }
    frontal = next((image.path for image in study.images if image.view in FRONTAL), None)
    sides = {**dict.fromkeys(FRONTAL, "Frontal"), View.LATERAL: "Lateral"}
    return {
        "key_image_path": frontal or next((image.path for image in study.images), None),
        "image_path": [image.path for image in study.images],
        "frontal_lateral": [sides.get(image.view) if image.view else None for image in study.images],
        "section_findings": report.findings,
        "section_impression": report.impression,
        # With "None" for a section that is missing, as in ReXrank's files.
        "report": f"Findings: {report.findings} Impression: {report.impression}",
        "context": " ".join(f"{name}: {value}" for name, value in known.items() if value),
        "split": study.split,
    }
