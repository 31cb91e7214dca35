"""Where references and predictions come from: a corpus, a run, a file, or texts in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core.egress import Shown
from cxrlab.core.errors import ConfigError, DataError, nearest, shown
from cxrlab.core.files import read_json
from cxrlab.core.protocols import CAUTIONS
from cxrlab.core.records import SECTIONS, Finding, Report, Study
from cxrlab.core.runs import state
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.views import FRONTAL
from cxrlab.evaluation.config import WRONG_IMAGES
from cxrlab.evaluation.controls import control_file
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY, finish_hint, missing_studies
from cxrlab.evaluation.report_files import (
    CANDIDATE_NAMES,
    ID,
    PATIENT_NAMES,
    REFERENCE_NAMES,
    TABLES,
    ReportFile,
    Row,
    age_years,
    cell_id,
    column_called,
    column_names,
    id_columns,
    id_text,
    is_nothing,
    keyed,
    kind_of_report,
    parse_columns,
    plain_name,
    read_rows,
    report_text,
    sex_letter,
    text_columns,
    view_word,
)
from cxrlab.metrics.pairs import Context

Texts = str | os.PathLike[str] | Sequence[str | None] | Mapping[str, str | None]
JOIN = "+"  # --section findings+impression
DEFAULT_SECTIONS = ("findings",)
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
        views: View of each image in order, None where it is unknown; None where the images are not listed.
        split: Of the corpus.
    """

    id: str
    text: str | None
    patient: str
    findings: tuple[Finding, ...] | None = None
    context: Context = Context()
    sex: str | None = None
    views: tuple[str | None, ...] | None = None
    split: str | None = None


@dataclass(frozen=True)
class Source:
    """References or predictions, in order.

    Args:
        name: What to call it in a message.
        items: Id → reference, or id → prediction text.
        numbered: Whether the ids are places, because the source gives none.
        expected: Ids that a finished run was asked for; None when nobody knows.
        wrong_images: Kind of wrong image → id → report, of a run that answered some studies with wrong images.
        synthetic: Whether no patient is behind it: only the card of a corpus says so.
        column: Column of a file in which the ids stand.
        reports: Columns of a file in which the reports stand.
        lost: Ids without a prediction with which the run was allowed to finish.
        cautions: Those of the run that wrote the predictions.
    """

    name: str
    items: Mapping[str, Any]
    numbered: bool = False
    expected: frozenset[str] | None = None
    wrong_images: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    synthetic: bool = False
    column: str | None = None
    reports: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    cautions: tuple[str, ...] = ()


def references_from(source: Texts, section: str = "findings") -> Source:
    """References from a corpus folder, a file, a run with predictions, a list or a mapping."""
    sections = chosen_sections(section)
    path = _path(source)
    if path is None:
        return _in_memory(source, "references", lambda key, text: Reference(key, text, key))
    if _is_corpus(path):
        corpus = load_corpus(path)
        items = {study.id: _of_study(study, sections) for study in corpus.studies()}
        return Source(str(path), items, synthetic=corpus.card.synthetic)
    file = _open(path)
    return _references(file, keyed(file.path, file.rows), sections, {})


def predictions_from(source: Texts) -> Source:
    """Predictions from a run folder, a file, a list or a mapping."""
    path = _path(source)
    if path is None:
        return _in_memory(source, "predictions", lambda _, text: text)
    file = _open(path)
    return _predictions(file, keyed(file.path, file.rows), {})


def sources_from(
    references: Texts,
    predictions: Texts | None,
    section: str = "findings",
    columns: Iterable[str] = (),
    *,
    by_row: bool = False,
) -> tuple[Source, Source]:
    """Both sides, with ids by which they can be matched.

    Args:
        references: Corpus folder, file, list or mapping.
        predictions: Run folder, file, list or mapping; None when the references' file holds both.
        section: Of the reference report; several joined with `+`.
        columns: `ROLE=NAME`, for files with columns of other names.
        by_row: Match two files row by row, whatever ids they have.
    """
    sections, called = chosen_sections(section), parse_columns(columns)
    told = _side(references, lambda: references_from(references, section), corpus=True)
    same = isinstance(told, _File) and str(predictions) == told.name
    if predictions is None or (same and isinstance(told, _File) and ("candidate" in called or _beside(told))):
        return _of_one_file(told, sections, called, by_row)
    said = _side(predictions, lambda: predictions_from(predictions))
    left, right = _id_pair(told, said, called, by_row)
    if isinstance(told, _File):
        told = _references(told, keyed(told.path, told.rows, left, by_row=left is None), sections, called)
    if isinstance(said, _File):
        said = _predictions(said, keyed(said.path, said.rows, right, by_row=right is None), called)
    return told, said


@dataclass(frozen=True)
class _File:
    """A file of reports whose id column is not chosen yet.

    Args:
        name: What the user named: the file, or its run folder.
        path: The file.
        rows: As `read_rows` gives them.
    """

    name: str
    path: Path
    rows: tuple[Row, ...]

    @property
    def is_run(self) -> bool:
        """Whether the user named a run folder."""
        return self.name != str(self.path)


def _open(path: Path) -> _File:
    file = _file_of(path)
    return _File(str(path), file, tuple(row for _, row in read_rows(file)))


def _side(source: Texts, whole: Callable[[], Source], *, corpus: bool = False) -> _File | Source:
    """A file with its rows; anything else as the source that it is."""
    path = _path(source)
    return whole() if path is None or (corpus and _is_corpus(path)) else _open(path)


def _is_corpus(path: Path) -> bool:
    return path.is_dir() and (path / STUDIES).is_file()


def _of_one_file(
    side: _File | Source, sections: tuple[str, ...], called: Mapping[str, str], by_row: bool
) -> tuple[Source, Source]:
    """Both sides from one file, where each row holds both reports."""
    if isinstance(side, Source):
        raise DataError(f"{side.name} holds references and no generated reports; give --predictions.")
    _check_called([side], called)
    column = column_called(column_names(side.rows), called["id"]) if "id" in called else None
    file = keyed(side.path, side.rows, column, by_row=by_row)
    candidate = _candidate_column(side, called, inline=True)
    told = _references(side, file, sections, called, candidate)
    items = {row.id: row.text(candidate) for row in file.rows}
    return told, Source(side.name, items, file.numbered, column=file.column, reports=(candidate,))


def _id_pair(
    told: _File | Source, said: _File | Source, called: Mapping[str, str], by_row: bool
) -> tuple[str | None, str | None]:
    """The columns of both sides in which the ids stand; None and None where rows are matched by their order."""
    if by_row:
        for side in (told, said):
            if side.is_run if isinstance(side, _File) else not side.numbered:
                raise ConfigError(
                    f"--by-row matches two files row by row, and {side.name} has ids; leave --by-row out."
                )
        return None, None
    _check_called([side for side in (told, said) if isinstance(side, _File)], called)
    left, right = _ids(told, called.get("id")), _ids(said, called.get("id"))
    same = [(one, two) for one in left for two in right if plain_name(one) == plain_name(two)]
    pairs = [*same, *((one, two) for one in left for two in right if (one, two) not in same)]
    for one, two in pairs:
        if _distinct(left[one]) and _distinct(right[two]) and _shared(left[one], right[two]):
            if "id" not in called and _numbers_rows(left[one]) and _numbers_rows(right[two]):
                more = _with_telling(told, said, left, right)
                # What differs from row to row by chance, such as seconds, does not recur as a whole.
                same += [pair for pair in more if _shared(left[pair[0]], right[pair[1]]) == len(right[pair[1]])]
            _check_agreement(told, said, (left, right), (one, two), same)
            return one, two
    if not left and not right and isinstance(told, _File) and isinstance(said, _File):
        return _other_pair(told, said)
    # With repeats, of other studies, or on one side alone: refused where they are read and matched.
    return pairs[0] if pairs else (next(iter(left), None), next(iter(right), None))


_Ids = dict[str, tuple[str | None, ...]]  # column → the id of each row


def _ids(side: _File | Source, called: str | None) -> _Ids:
    if isinstance(side, Source):
        return {} if side.numbered else {ID: tuple(side.items)}
    name = None if called is None else column_called(column_names(side.rows), called)
    return id_columns(side.rows) if name is None else {name: tuple(cell_id(row, name) for row in side.rows)}


def _check_agreement(
    told: _File | Source,
    said: _File | Source,
    ids: tuple[_Ids, _Ids],
    chosen: tuple[str, str],
    same: Iterable[tuple[str, str]],
) -> None:
    """Refuse two columns of ids by which different rows belong together: one of them is only the rows' number."""
    left, right = ids
    rows = {key: place for place, key in enumerate(left[chosen[0]])}
    for one, two in same:
        if (one, two) == chosen or not _shared(left[one], right[two]):
            continue
        for place, key in enumerate(right[chosen[1]]):
            row = rows.get(key, rows.get(split_image_id(key or "")[0]))
            if row is not None and left[one][row] not in (
                right[two][place],
                split_image_id(right[two][place] or "")[0],
            ):
                raise DataError(
                    f"{told.name} and {said.name} match otherwise by '{chosen[0]}' than by '{one}' (for example "
                    f"'{chosen[0]}' {key}); name the column that identifies the studies with --columns id=NAME."
                )


def _other_pair(told: _File, said: _File) -> tuple[str | None, str | None]:
    """The column that both files have whose values differ from row to row and recur in the other; None without one.

    One that numbers the rows of both files says no more than their order.
    """
    left: _Ids = {}
    right: _Ids = {}
    found = {
        (one, two): _shared(left[one], right[two])
        for one, two in _with_telling(told, said, left, right)
        if not (_numbers_rows(left[one]) and _numbers_rows(right[two]))
    }
    best = max(found, key=lambda pair: found[pair], default=None)
    if best is None or not found[best]:
        _check_order(told, said)
        return None, None
    _check_agreement(told, said, (left, right), best, [pair for pair in found if found[pair] == found[best]])
    return best


def _with_telling(
    told: _File | Source,
    said: _File | Source,
    left: _Ids,
    right: _Ids,
) -> list[tuple[str, str]]:
    """The columns of the same name on both sides, with those that are told by their values put among the others."""
    for side, ids in ((told, left), (said, right)):
        if isinstance(side, _File):
            ids |= {name: tuple(cell_id(row, name) for row in side.rows) for name in _telling(side.rows)}
    return [(one, two) for one in left for two in right if plain_name(one) == plain_name(two)]


def _numbers_rows(ids: Sequence[str | None]) -> bool:
    """Whether these are 0, 1, 2 … or 1, 2, 3 …, as data frames and spreadsheets number their rows."""
    return any(all(key == str(number) for number, key in enumerate(ids, first)) for first in (0, 1))


def _check_order(told: _File, said: _File) -> None:
    """Refuse to match by position where a column of both files has the same values in another order."""
    names = {plain_name(name): name for name in column_names(told.rows)}
    for two in column_names(said.rows):
        one = names.get(plain_name(two))
        if one is None or kind_of_report(two) in (*CANDIDATE_NAMES, *REFERENCE_NAMES, "report", *DEFAULT_SECTIONS):
            continue
        left, right = ([str(row.values.get(name)) for row in side.rows] for side, name in ((told, one), (said, two)))
        if left != right and sorted(left) == sorted(right):
            raise DataError(
                f"{told.name} and {said.name} have no column of ids, and their rows are not in the same order: '{one}' "
                "has the same values in another order; name the column that identifies the studies with --columns "
                "id=NAME, or match row by row nevertheless with --by-row."
            )


def _telling(rows: Sequence[Row]) -> Iterator[str]:
    """Columns with a word or a whole number of its own in each row, which is neither a report nor about the patient."""
    for name in column_names(rows):
        ids = tuple(cell_id(row, name) for row in rows)
        known = kind_of_report(name) in (*CANDIDATE_NAMES, *REFERENCE_NAMES, "report", *_NO_IDS)
        if not known and _distinct(ids) and not any(" " in (key or "") or _is_fraction(key or "") for key in ids):
            yield name


_NO_IDS = (*SECTIONS, "age", "sex", "view", "split", "score", "confidence")


def _is_fraction(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d*\.\d+(e[-+]?\d+)?", text, re.IGNORECASE) is not None


def _distinct(ids: Sequence[str | None]) -> bool:
    return None not in ids and len(set(ids)) == len(ids)


def _shared(told: Iterable[str | None], said: Iterable[str | None]) -> int:
    """How many predictions have an id of the references; `s1#2` counts where `s1` is one."""
    there = set(told)
    return sum(key is not None and (key in there or split_image_id(key)[0] in there) for key in said)


def split_image_id(key: str) -> tuple[str, int | None]:
    """`s1#2` is image 2 of s1; anything else is a study."""
    study, mark, number = key.rpartition("#")
    # `s1#00` is no second name of `s1#0`: the same image would count twice.
    single = mark and number.isascii() and number.isdigit() and str(int(number)) == number
    return (study, int(number)) if single else (key, None)


def _check_called(sides: Sequence[_File], called: Mapping[str, str]) -> None:
    """Refuse a column of --columns id=NAME that no file has."""
    if "id" in called and not any(column_called(column_names(side.rows), called["id"]) for side in sides):
        columns = "; ".join(", ".join(column_names(side.rows)) for side in sides) or "none"
        raise DataError(f"Columns found: {columns}. No column '{called['id']}' to match by: correct --columns id=NAME.")


def _references(
    side: _File, file: ReportFile, sections: tuple[str, ...], called: Mapping[str, str], candidate: str | None = None
) -> Source:
    columns = _reference_columns(side, sections, called, candidate)
    items = {row.id: _of_row(row, sections, columns) for row in file.rows}
    return Source(side.name, items, file.numbered, column=file.column, reports=columns)


def _predictions(side: _File, file: ReportFile, called: Mapping[str, str]) -> Source:
    column = _candidate_column(side, called)
    items = {row.id: row.text(column) for row in file.rows}
    if not side.is_run:
        return Source(side.name, items, file.numbered, column=file.column, reports=(column,))
    run = side.path.parent
    files = {control: run / control_file(control) for control in WRONG_IMAGES}
    wrong = {control: predictions_from(file).items for control, file in files.items() if _holds_text(file)}
    lost = _lost(run)
    expected = None if lost is None else frozenset(items) | lost
    return Source(
        side.name,
        items,
        file.numbered,
        expected,
        wrong,
        column=file.column,
        reports=(column,),
        lost=lost or frozenset(),
        cautions=_cautions(run),
    )


def _reference_columns(
    side: _File, sections: tuple[str, ...], called: Mapping[str, str], candidate: str | None
) -> tuple[str, ...]:
    """Where the references stand: one column, or those of several sections; none where each row has `sections`."""
    if "reference" in called:
        return (_called_column(side, called, "reference"),)
    texts = {name: kind_of_report(name) for name in text_columns(side.rows) if name != candidate}
    options: list[tuple[str, ...]] = [(name,) for name, kind in texts.items() if kind in (*REFERENCE_NAMES, "report")]
    parts = tuple(name for section in sections for name, kind in texts.items() if kind == section)
    if parts and len(parts) == len(sections):
        if sections != DEFAULT_SECTIONS:
            return parts  # asked for by name
        options.append(parts)
    if len(options) > 1:
        raise _ambiguous(side, [", ".join(option) for option in options], "reference")
    if not options and not all(isinstance(row.values.get("sections"), Mapping) for row in side.rows):
        raise DataError(
            f"{side.path}: Columns found: {_listed(side)}. No column of reference reports: name one `reference` or "
            "pass --columns reference=NAME."
        )
    return options[0] if options else ()


def _candidate_column(side: _File, called: Mapping[str, str], *, inline: bool = False) -> str:
    """Where the generated reports stand, in a file of their own or, inline, beside the references."""
    if "candidate" in called:
        return _called_column(side, called, "candidate")
    texts = {name: kind_of_report(name) for name in text_columns(side.rows)}
    if inline:
        found = _beside(side)
    else:
        report = [name for name, kind in texts.items() if kind == "report"]
        named = [name for name, kind in texts.items() if kind in CANDIDATE_NAMES]
        found = report if side.is_run and report else [*named, *report]
    if len(found) > 1:
        raise _ambiguous(side, found, "candidate")
    if not found:
        if inline and side.path.suffix.lower() not in TABLES:
            raise DataError(
                f"{side.path} holds one report per line and no generated reports beside; give --predictions."
            )
        remedy = "name one `candidate` or pass --columns candidate=NAME" + (", or give --predictions" if inline else "")
        raise DataError(f"{side.path}: Columns found: {_listed(side)}. No column of generated reports: {remedy}.")
    return found[0]


def _beside(side: _File) -> list[str]:
    """Columns of generated reports beside those of references; none in a file of one kind, scored against itself."""
    texts = {name: kind_of_report(name) for name in text_columns(side.rows)}
    if found := [name for name, kind in texts.items() if kind in CANDIDATE_NAMES]:
        return found
    # `report` is the generated one only where something else is clearly the reference.
    sections = [name for name, kind in texts.items() if kind in SECTIONS]
    known = len(sections) == 1 or any(kind in REFERENCE_NAMES for kind in texts.values())
    return [name for name, kind in texts.items() if kind == "report" and known]


def _called_column(side: _File, called: Mapping[str, str], role: str) -> str:
    """The column that --columns names for a role."""
    if (column := column_called(column_names(side.rows), called[role])) is None:
        raise DataError(
            f"{side.path}: Columns found: {_listed(side)}. No column '{called[role]}': correct --columns {role}=NAME."
        )
    return column


def _ambiguous(side: _File, options: Sequence[str], role: str) -> DataError:
    several = " and ".join(f"'{option}'" for option in options)
    return DataError(
        f"{side.path}: Columns found: {_listed(side)}. {several} may each hold the {role} reports: choose one with "
        f"--columns {role}=NAME."
    )


def _listed(side: _File) -> str:
    return ", ".join(name or "(without a name)" for name in column_names(side.rows))


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
            f"{path} is a run that has not finished, so its predictions are not complete; {finish_hint(path)}, or "
            f"name {path / PREDICTIONS} itself."
        )
    return path / PREDICTIONS


def _lost(run: Path) -> frozenset[str] | None:
    """Studies without a prediction with which `generate --allow-missing` finished; None when the run tells nothing."""
    return missing_studies(run) if state(run) == "finished" else None


def _cautions(run: Path) -> tuple[str, ...]:
    """What the summary of a run of `generate` cautions about."""
    summary = read_json(run / SUMMARY) if (run / SUMMARY).is_file() else {}
    told = summary.get(CAUTIONS) if isinstance(summary, dict) else None
    return tuple(map(str, told)) if isinstance(told, list) else ()


def _holds_text(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def _of_study(study: Study, sections: tuple[str, ...]) -> Reference:
    report = study.sections or Report()
    return Reference(
        id=study.id,
        text=_joined(report, sections),
        patient=study.patient,
        # The exact findings are the image's truth: an impression, which repeats only some, is not measured by them.
        findings=study.findings if "findings" in sections else None,
        context=Context(None if study.age is None else float(study.age), report.indication),
        sex=study.sex,
        views=tuple(image.view and image.view.value for image in study.images),
        split=study.split,
    )


def _of_row(row: Row, sections: tuple[str, ...], columns: Sequence[str]) -> Reference:
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
        text, indication = _joined_cells(row, columns or ("report",)), values.get("indication")
    column = next((name for kind in PATIENT_NAMES for name in values if plain_name(name) == kind), "patient")
    patient = values.get(column)
    without = is_nothing(patient) or (isinstance(patient, str) and not patient.strip())
    return Reference(
        id=row.id,
        text=text,
        patient=row.id if without else cell_id(row, column) or id_text(patient, f"{row.place}, {column}"),
        findings=findings,
        context=Context(age_years(values.get("age"), row.place), indication if isinstance(indication, str) else None),
        sex=sex_letter(values.get("sex")),
        views=_views(values),
        split=str(values["split"]) if values.get("split") else None,
    )


def _joined_cells(row: Row, columns: Sequence[str]) -> str | None:
    parts = [text for name in columns if (text := row.text(name)) is not None]
    return " ".join(parts) if parts else None


def _views(values: Mapping[str, Any]) -> tuple[str | None, ...] | None:
    images = values.get("images")
    if isinstance(images, list):
        return tuple(view_word(image.get("view")) for image in images if isinstance(image, dict))
    word = view_word(values.get("view"))
    return (word,) if word else None


def _joined(report: Report, sections: tuple[str, ...]) -> str | None:
    parts = [text for name in sections if (text := report.section(name)) is not None]
    return " ".join(parts) if parts else None


def report_view(reference: Reference, image: int | None) -> str | None:
    """The view that a report was written from: that of the named image, else the frontal one a model is given."""
    views = reference.views or ()
    if image is not None:
        return views[image] if image < len(views) else None
    return next((view.value for view in FRONTAL if view.value in views), views[0] if len(views) == 1 else None)


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
