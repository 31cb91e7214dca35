"""Where references and predictions come from: a corpus, a run, a file, or texts in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError, nearest, shown
from cxrlab.core.files import read_json
from cxrlab.core.records import SECTIONS, Finding, Report, Study
from cxrlab.core.runs import state
from cxrlab.core.vocabulary import View
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.views import FRONTAL
from cxrlab.evaluation.config import WRONG_FILMS
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
from cxrlab.evaluation.person import age_years, sex_letter, view_word
from cxrlab.evaluation.report_files import ReportFile, Row, id_text, read_reports, report_text
from cxrlab.evaluation.wrong_films import control_file
from cxrlab.metrics.pairs import Context

Texts = str | os.PathLike[str] | Sequence[str | None] | Mapping[str, str | None]
JOIN = "+"  # --section findings+impression
_LONGEST = 255  # characters of a file name


@dataclass(frozen=True)
class Reference:
    """One study that a report is scored against.

    Args:
        id: Of the study.
        text: The reference report; None where the source has none.
        patient: Groups studies; the id where unknown.
        findings: Exact findings where the source carries them.
        context: Age and indication.
        sex: F, M or None.
        views: View of each film, in order; None where the films are not listed.
        split: Of the corpus.
    """

    id: str
    text: str | None
    patient: str
    findings: tuple[Finding, ...] | None = None
    context: Context = Context()
    sex: str | None = None
    views: tuple[str, ...] | None = None
    split: str | None = None


@dataclass(frozen=True)
class Source:
    """References or predictions, in order.

    Args:
        name: What to call it in a message.
        items: Id → reference, or id → prediction text.
        numbered: Whether the ids are places, because the source gives none.
        expected: Ids that a finished run was asked for; None when nobody knows.
        inline: Predictions that stand in the same file as the references; None when they do not.
        wrong_films: Kind of wrong film → id → report, of a run that answered some studies with wrong films.
        synthetic: Whether no patient is behind it: only the card of a corpus says so.
    """

    name: str
    items: Mapping[str, Any]
    numbered: bool = False
    expected: frozenset[str] | None = None
    inline: Mapping[str, str | None] | None = None
    wrong_films: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    synthetic: bool = False


def references_from(source: Texts, section: str = "findings") -> Source:
    """References from a corpus folder, a file, a run with predictions, a list or a mapping."""
    sections = chosen_sections(section)
    path = _path(source)
    if path is None:
        return _in_memory(source, "references", lambda key, text: Reference(key, text, key))
    if path.is_dir() and (path / STUDIES).is_file():
        corpus = load_corpus(path)
        items = {study.id: _of_study(study, sections) for study in corpus.studies()}
        return Source(str(path), items, synthetic=corpus.card.synthetic)
    file = read_reports(_file_of(path))
    items = {row.id: _of_row(row, sections) for row in file.rows}
    inline = None
    if all("candidate" in row.values for row in file.rows):
        inline = {row.id: row.text("candidate") for row in file.rows}
    return Source(str(path), items, file.numbered, inline=inline)


def predictions_from(source: Texts) -> Source:
    """Predictions from a run folder, a file, a list or a mapping."""
    path = _path(source)
    if path is None:
        return _in_memory(source, "predictions", lambda _, text: text)
    file = read_reports(_file_of(path))
    items = _texts(file)
    if not path.is_dir():
        return Source(str(path), items, file.numbered)
    files = {control: path / control_file(control) for control in WRONG_FILMS}
    wrong = {control: _texts(read_reports(file)) for control, file in files.items() if _holds_text(file)}
    return Source(str(path), items, file.numbered, _expected(path, file), wrong_films=wrong)


def chosen_sections(section: str) -> tuple[str, ...]:
    """The names in `findings` or `findings+impression`."""
    names = tuple(name.strip() for name in section.split(JOIN))
    for name in names:
        if name not in SECTIONS:
            raise ConfigError(
                f"'{name}' is not a section of a report.{nearest(name, SECTIONS)} Sections: {', '.join(SECTIONS)}; "
                f"several are joined with {JOIN}."
            )
    return names


def _path(source: Texts) -> Path | None:
    """The path that is meant; None for texts in memory. A report in the place of a path is refused as such."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    # A text longer than any path may be, too, would be an error of the system further on.
    is_text = isinstance(source, str) and (any(c.isspace() for c in source) or not source or len(source) > _LONGEST)
    if is_text and not (source and os.path.exists(source)):
        raise DataError(f"{shown(source)} is no file or folder; put single reports into a list, or check the path.")
    return Path(source)


def _in_memory(source: Any, name: str, make: Any) -> Source:
    numbered = not isinstance(source, Mapping)
    if isinstance(source, Set) or not isinstance(source, Iterable):
        raise DataError(
            f"the {name} are {shown(source)}; give a list of reports, a mapping of id to report, or a path."
        )
    if numbered and not isinstance(source, Sequence):
        source = list(source)  # a column of a data frame, an array, a generator
    pairs = [(str(place), text) for place, text in enumerate(source, 1)] if numbered else list(source.items())
    keys = [id_text(key, name) for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise DataError(f"the {name} use the id '{next(k for k in keys if keys.count(k) > 1)}' twice.")
    place = f"{name}, report" if numbered else f"{name}, id"
    texts = [report_text(text, f"{place} {key}") for key, (_, text) in zip(keys, pairs, strict=True)]
    return Source(f"the {name}", {key: make(key, text) for key, text in zip(keys, texts, strict=True)}, numbered)


def _file_of(path: Path) -> Path:
    """The file to read: of a run folder its predictions."""
    if not path.is_dir():
        return path
    if not (path / PREDICTIONS).is_file():
        if (path / STUDIES).is_file():
            raise DataError(f"{path} is a corpus, not predictions; name a file or a run with {PREDICTIONS}.")
        raise DataError(
            f"{path} is neither a corpus ({STUDIES}) nor a run with {PREDICTIONS}; name a file or one of these."
        )
    if state(path) in ("running", "interrupted"):
        raise DataError(
            f"{path} is a run that has not finished, so its predictions are not complete; "
            f"run its command again to finish it, or name {path / PREDICTIONS} itself."
        )
    return path / PREDICTIONS


def _expected(run: Path, file: ReportFile) -> frozenset[str] | None:
    """What a finished run of `generate` was asked for: its predictions and the studies it could not read."""
    if state(run) != "finished" or not (run / SUMMARY).is_file():
        return None
    summary = read_json(run / SUMMARY)
    missing = summary.get("missing") if isinstance(summary, dict) else None
    if not isinstance(missing, list):
        return None
    lost = {str(item["id"]) for item in missing if isinstance(item, dict) and "id" in item}
    return frozenset(lost | {row.id for row in file.rows})


def _texts(file: ReportFile) -> dict[str, str | None]:
    return {row.id: row.text("report", "candidate", "prediction") for row in file.rows}


def _holds_text(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _of_study(study: Study, sections: tuple[str, ...]) -> Reference:
    report = study.sections or Report()
    return Reference(
        id=study.id,
        text=_joined(report, sections),
        patient=study.patient,
        # The exact findings are the film's truth: an impression, which repeats only some, is not measured by them.
        findings=study.findings if "findings" in sections else None,
        context=Context(None if study.age is None else float(study.age), report.indication),
        sex=study.sex,
        views=tuple(image.view.value for image in study.images),
        split=study.split,
    )


def _of_row(row: Row, sections: tuple[str, ...]) -> Reference:
    values = row.values
    try:
        exact = values.get("findings")
        findings = tuple(map(Finding.from_json, exact)) if isinstance(exact, list) and "findings" in sections else None
        report = Report.from_json(values["sections"]) if isinstance(values.get("sections"), Mapping) else None
    except DataError as error:
        raise DataError(f"{row.place}: {error}") from None
    if report is not None:
        text, indication = _joined(report, sections), report.indication
    else:
        text, indication = row.text("report", "reference", *sections), values.get("indication")
    patient = values.get("patient")
    return Reference(
        id=row.id,
        text=text,
        patient=id_text(patient, f"{row.place}, patient") if patient not in (None, "") else row.id,
        findings=findings,
        context=Context(age_years(values.get("age"), row.place), indication if isinstance(indication, str) else None),
        sex=sex_letter(values.get("sex")),
        views=_views(values),
        split=str(values["split"]) if values.get("split") else None,
    )


def _views(values: Mapping[str, Any]) -> tuple[str, ...] | None:
    images = values.get("images")
    if isinstance(images, list):
        return tuple(view_word(image.get("view")) or View.FRONTAL.value for image in images if isinstance(image, dict))
    word = view_word(values.get("view"))
    return (word,) if word else None


def _joined(report: Report, sections: tuple[str, ...]) -> str | None:
    parts = [text for name in sections if (text := report.section(name)) is not None]
    return " ".join(parts) if parts else None


def shown_view(reference: Reference, film: int | None) -> str | None:
    """The view that a report was written from: that of the named film, else the frontal one a model is given."""
    views = reference.views or ()
    if film is not None:
        return views[film] if film < len(views) else None
    return next((view.value for view in FRONTAL if view.value in views), views[0] if len(views) == 1 else None)
