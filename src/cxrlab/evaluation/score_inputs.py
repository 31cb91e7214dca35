"""Read references and predictions and match them by id; no report is dropped, doubled or paired with another's."""

from __future__ import annotations

import hashlib
import os
import typing
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.egress import EgressData
from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.model_interfaces import CAUTIONS
from cxrlab.core.records import ALIASES, SECTIONS, Finding, Report
from cxrlab.core.runs import state
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.views import FRONTAL
from cxrlab.evaluation.config import CONTROL_IMAGES
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY, control_file, explain_how_to_finish, read_missing_studies
from cxrlab.evaluation.report_files import (
    ID,
    MODEL_PREDICTION,
    PATIENT_NAMES,
    IdColumns,
    ReportFile,
    ReportTable,
    Row,
    assign_ids,
    check_id_column,
    choose_candidate_column,
    choose_reference_columns,
    find_id_columns,
    find_named_id_column,
    is_missing,
    list_inline_candidates,
    match_id_columns,
    normalise_name,
    parse_age,
    parse_columns,
    parse_id,
    parse_report,
    parse_sex,
    parse_view,
    read_id,
    read_rows,
    split_image_id,
)
from cxrlab.evaluation.rexrank import select_sections
from cxrlab.metrics.report_pairs import Context, Pair

Texts = str | os.PathLike[str] | Sequence[str | None] | Mapping[str, str | None]
Unit = Literal["auto", "study", "image"]
JOIN = "+"  # --section findings+impression
_LONGEST_NAME = 255  # characters of a file name


@dataclass(frozen=True)
class Attributes:
    """What slices are made by; None where unknown. The view is that of the image that was read."""

    view: str | None = None
    sex: str | None = None
    age: float | None = None
    device: bool | None = None


@dataclass(frozen=True)
class Inputs:
    """What is scored."""

    pairs: tuple[Pair, ...]  # in the order of the references
    attributes: tuple[Attributes, ...]  # of each pair's patient and image; whether a device is there is not known yet
    digest: str  # SHA-256 of every id and text, by which a finished run is recognised
    # Control image → id → report, where the run of predictions has such a control.
    control_reports: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    # Both sides, for the check before anything is sent to a model elsewhere.
    egress_data: tuple[EgressData, ...] = field(default=(EgressData("these reports", synthetic=False),), compare=False)
    # How the rows of both sides were matched, for `scores.json`.
    matching: Mapping[str, Any] = field(default_factory=dict, compare=False)
    cautions: tuple[str, ...] = ()  # those of the run that generated the predictions
    extra: tuple[str, ...] = ()  # predictions that belong to no reference, and were left out
    missing: tuple[str, ...] = ()  # references without a prediction that were left out


@dataclass(frozen=True)
class Reference:
    """One study that a report is scored against."""

    id: str  # of the study
    text: str | None  # the reference report; None where the source has none
    patient: str  # groups studies; the id where unknown
    findings: tuple[Finding, ...] | None = None  # exact findings where the source carries them
    context: Context = Context()  # age and indication
    sex: str | None = None  # f, M or None
    # View of each image in order, None where it is unknown; None where the images are not listed.
    views: tuple[str | None, ...] | None = None
    split: str | None = None  # of the corpus
    aliases: tuple[str, ...] = ()  # other ids of the study, by which predictions are matched too


@dataclass(frozen=True)
class Source:
    """References or predictions, in order."""

    name: str  # the source in messages
    items: Mapping[str, Any]  # id → reference, or id → prediction text
    numbered: bool = False  # whether the ids are row numbers, because the source gives none
    expected: frozenset[str] | None = None  # ids that a finished run was asked for; None when unknown
    # Control image → id → report, of a run that generated some reports from control images.
    control_reports: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    synthetic: bool = False  # true only where the card of a corpus says that no patient is behind it
    column: str | None = None  # column of a file that holds the ids
    reports: tuple[str, ...] = ()  # columns of a file that hold the reports
    missing: frozenset[str] = frozenset()  # ids without a prediction with which the run was allowed to finish
    cautions: tuple[str, ...] = ()  # those of the run that generated the predictions


def load_inputs(
    references: Texts,
    predictions: Texts | None = None,
    *,
    section: str = "findings",
    split: str | None = None,
    unit: Unit = "auto",
    allow_missing: bool = False,
    columns: Iterable[str] = (),
    by_row: bool = False,
    matched_only: bool = False,
) -> Inputs:
    """Read both sides and match them; see `score.score` for the arguments.

    A prediction without a reference is always an error, a reference without a prediction unless `allow_missing`. A run
    of `generate` that was allowed to finish without some studies needs no further permission for these. With
    `matched_only` what does not match is left out and listed instead, as long as anything matches.
    """
    if unit not in typing.get_args(Unit):
        raise ConfigError(f"the unit is {unit!r}; choose one of {', '.join(typing.get_args(Unit))}.")
    left, right = read_sources(references, predictions, section, columns, by_row=by_row)
    right = _resolve_aliases(left, right)
    places = _place_predictions(left, right, unit)
    pairs, attributes = [], []
    selected, extra, missing = _select_pairs(left, right, places, split, allow_missing, matched_only)
    for key, study, image in selected:
        reference: Reference = left.items[study]
        candidate = right.items.get(key)
        pairs.append(Pair(key, reference.text, candidate, reference.patient, reference.findings, reference.context))
        view = find_report_view(reference, image)
        attributes.append(Attributes(view, reference.sex, reference.context.age, None))
    digest = inputs_digest(pairs, attributes)
    if right.control_reports:
        digest = hashlib.sha256(f"{digest} {right.control_reports!r}".encode("utf-8", "surrogatepass")).hexdigest()
    one_file = right.name == left.name
    # Texts in memory and in a plain file are taken for a patient's.
    egress = [EgressData(left.name, left.synthetic)]
    if not one_file and isinstance(predictions, (str, os.PathLike)):
        egress.append(describe_reports(Path(predictions), egress[0]))
    elif not one_file:
        egress.append(EgressData(right.name, synthetic=False))
    sides = {
        name: {"rows": len(side.items), "id": side.column, "report": list(side.reports)}
        for name, side in {"references": left, "predictions": right}.items()
    }
    matched = sum(pair.id in right.items for pair in pairs)
    by = "file" if one_file else "row" if left.numbered else "id"
    matching = {"by": by, **sides, "matched": matched, "missing": len(pairs) - matched}
    return Inputs(
        tuple(pairs),
        tuple(attributes),
        digest,
        right.control_reports,
        tuple(egress),
        matching,
        right.cautions,
        tuple(extra),
        tuple(missing),
    )


def _resolve_aliases(left: Source, right: Source) -> Source:
    """The predictions under the ids of the references, where they have others of the same studies."""
    names = {alias: key for key, reference in left.items.items() for alias in reference.aliases}
    if not names:
        return right

    def own(key: str) -> str:
        study, image = split_image_id(key)
        if key in left.items or study in left.items:
            return key
        return names.get(key) or (f"{names[study]}#{image}" if image is not None and study in names else key)

    for key in right.items:
        if (other := own(key)) != key and other in right.items:
            raise DataError(f"'{key}' and '{other}' in {right.name} are ids of the same study; keep one of them.")
    return replace(
        right,
        items={own(key): text for key, text in right.items.items()},
        expected=None if right.expected is None else frozenset(map(own, right.expected)),
        control_reports={
            kind: {own(key): text for key, text in texts.items()} for kind, texts in right.control_reports.items()
        },
        missing=frozenset(map(own, right.missing)),
    )


def inputs_digest(pairs: Iterable[Pair], attributes: Iterable[Attributes]) -> str:
    """SHA-256 of ids, patients, texts, exact findings and what the slices are made by, in order."""
    digest = hashlib.sha256()
    for pair, known in zip(pairs, attributes, strict=True):
        row = (pair.id, pair.patient, pair.reference, pair.candidate, pair.findings, pair.context, known)
        digest.update(repr(row).encode())
    return digest.hexdigest()


def _place_predictions(left: Source, right: Source, unit: Unit) -> dict[str, tuple[str, int | None]]:
    """Prediction id → (study, image); an id that fits nothing is its own study, and an error later."""
    if not left.items:
        raise DataError(f"there is nothing to score: {left.name} hold no report.")
    if left.numbered and right.numbered and len(left.items) != len(right.items):
        raise DataError(
            f"there are {len(left.items)} reports in {left.name} and {len(right.items)} in {right.name}; row by row "
            "the first belongs to the first and so on, so both need equally many."
        )
    if left.numbered != right.numbered:
        bare, named = (left, right) if left.numbered else (right, left)
        column = f" (column '{named.column}')" if named.column else ""
        raise DataError(
            f"reports have ids in {named.name}{column} and none in {bare.name}; give both ids, name the column that "
            "holds them with --columns id=NAME, or match two files of equal length row by row with --by-row."
        )
    places: dict[str, tuple[str, int | None]] = {}
    for key in right.items:
        study, image = split_image_id(key)
        whole_study = unit == "study" or image is None or (key in left.items and unit != "image")
        places[key] = (key, None) if whole_study or study not in left.items else (study, image)
    whole = [key for key, (_, image) in places.items() if image is None and key in left.items]
    single = [key for key, (_, image) in places.items() if image is not None]
    if whole and unit == "image":
        raise DataError(
            f"'{whole[0]}' in {right.name} is a whole study; --unit image scores single images, named study#0, "
            "study#1, …"
        )
    if whole and single:
        raise DataError(
            f"{right.name} has predictions for whole studies ('{whole[0]}') and for single images ('{single[0]}'); "
            "keep to one kind, or choose with --unit."
        )
    for key in single:
        study, image = places[key]
        views = left.items[study].views
        if views is not None and image is not None and image >= len(views):
            raise DataError(
                f"'{key}' in {right.name} is image {image} of study '{study}', which has {len(views)} (from 0)."
            )
    return places


def _select_pairs(
    left: Source,
    right: Source,
    places: Mapping[str, tuple[str, int | None]],
    split: str | None,
    allow_missing: bool,
    matched_only: bool,
) -> tuple[list[tuple[str, str, int | None]], list[str], list[str]]:
    """Id, study and image of each pair, in the order of the references and of their images.

    Predictions and references that do not match raise `DataError`. Where images are scored one by one, every frontal
    image of a study needs a prediction, or those that the run of predictions was asked for; a study whose views are
    unknown needs one.

    With `matched_only` these are returned instead: predictions without a reference, and references without a prediction.
    """
    studies: Mapping[str, Reference] = left.items
    predicted = {study for study, _ in places.values()}
    if split is not None:
        selected = [key for key, item in studies.items() if item.split == split]
        if not selected:
            held = sorted({item.split or "none" for item in studies.values()})
            raise DataError(f"{left.name} has no study in the split '{split}' (splits there: {', '.join(held)}).")
    elif right.expected is not None:
        expected = {split_image_id(key)[0] if key not in studies else key for key in right.expected}
        selected = [key for key in studies if key in expected]
    else:
        splits = {studies[study].split for study in predicted if study in studies}
        selected = [key for key, item in studies.items() if item.split in splits]
    extra = [key for key, (study, _) in places.items() if study not in set(selected)]
    pairs = _pairs_of_studies(selected, left, right, places)
    missing = [key for key, _, _ in pairs if key not in right.items and key not in right.missing]
    if len(extra) == len(places):
        left_column, right_column = (f", column '{side.column}'" if side.column else "" for side in (left, right))
        raise DataError(
            f"no prediction of {right.name} belongs to a reference of {left.name} "
            f"(predictions{right_column}: {_examples(extra)}; references{left_column}: "
            f"{_examples(selected or list(studies))}); check the ids, or name their column with --columns id=NAME."
        )
    if matched_only:
        lacking = [] if allow_missing else missing
        return [pair for pair in pairs if pair[0] not in set(lacking)], extra, lacking
    problems = []
    if extra:
        problems.append(
            f"{len(extra)} of {len(places)} predictions have no reference (for example {_examples(extra)}); "
            "take them out, or name the references they belong to"
        )
    if missing and not allow_missing:
        problems.append(
            f"{len(missing)} of {len(pairs)} references have no prediction (for example {_examples(missing)}); "
            "add them, or score them as empty reports with --allow-missing"
        )
    if problems:
        raise DataError(f"{left.name} and {right.name} do not match: {'; '.join(problems)}.")
    return pairs, [], []


def _pairs_of_studies(
    selected: Iterable[str], left: Source, right: Source, places: Mapping[str, tuple[str, int | None]]
) -> list[tuple[str, str, int | None]]:
    """The pairs of these studies: every prediction, and every reference that should have one; see `_select_pairs`."""
    wanted: dict[str, set[tuple[str, int | None]]] = {}
    for key, (study, image) in places.items():
        wanted.setdefault(study, set()).add((key, image))
    by_image = any(image is not None for _, image in places.values())
    for key in right.expected or () if by_image else ():
        study, image = split_image_id(key)
        wanted.setdefault(study, set()).add((key, image))
    pairs: list[tuple[str, str, int | None]] = []
    for study in selected:
        views = left.items[study].views
        images = wanted.get(study, set())
        if by_image and views is not None and (right.expected is None or not images):
            images |= {(f"{study}#{place}", place) for place, view in enumerate(views) if view in FRONTAL}
        elif not images:
            images = {(study, None)}
        pairs += [(key, study, image) for key, image in sorted(images, key=lambda item: item[1] or 0)]
    return pairs


def _examples(keys: Sequence[str]) -> str:
    return ", ".join(f"'{key}'" for key in keys[:3])


def read_references(source: Texts, section: str = "findings") -> Source:
    """References from a corpus folder, a file, a run with predictions, a list or a mapping."""
    sections = parse_sections(section)
    side = _open_source(source, "references", sections)
    return side if isinstance(side, Source) else _references(side, assign_ids(side.path, side.rows), sections, {})


def read_predictions(source: Texts) -> Source:
    """Predictions from a run folder, a file, a list or a mapping."""
    side = _open_source(source, "predictions")
    return side if isinstance(side, Source) else _predictions(side, assign_ids(side.path, side.rows), {})


def read_sources(
    references: Texts,
    predictions: Texts | None,
    section: str = "findings",
    columns: Iterable[str] = (),
    *,
    by_row: bool = False,
) -> tuple[Source, Source]:
    """Both sides, with ids by which they can be matched; see `load_inputs`."""
    sections, named = parse_sections(section), parse_columns(columns)
    left = _open_source(references, "references", sections)
    if predictions is None or _is_file_of_both(left, predictions, named):
        if isinstance(left, Source):
            raise DataError(f"{left.name} holds references and no generated reports; give --predictions.")
        check_id_column([left], named)
        file = assign_ids(left.path, left.rows, find_named_id_column(left, named), by_row=by_row)
        candidate = choose_candidate_column(left, named, inline=True)
        items, reports = _candidates(file.rows, candidate, () if "reference" in named else sections)
        inline = Source(left.name, items, file.numbered, column=file.column, reports=reports)
        return _references(left, file, sections, named, candidate), inline
    right = _open_source(predictions, "predictions")
    one, two = None, None  # the rows of both are numbered
    if by_row:
        _check_no_ids(left, right)
    else:
        check_id_column([side for side in (left, right) if isinstance(side, ReportTable)], named)
        one, two = match_id_columns(_id_columns(left, named), _id_columns(right, named), given="id" in named)
    if isinstance(left, ReportTable):
        left = _references(left, assign_ids(left.path, left.rows, one, by_row=one is None), sections, named)
    if isinstance(right, ReportTable):
        file = assign_ids(right.path, right.rows, two, by_row=two is None)
        right = _predictions(right, file, named, () if "reference" in named else sections)
    return left, right


def _is_file_of_both(left: ReportTable | Source, predictions: Texts, named: Mapping[str, str]) -> bool:
    """Whether the file of references was named for the predictions too, and holds generated reports beside them."""
    if isinstance(left, Source) or str(predictions) != left.name:
        return False
    return "candidate" in named or bool(list_inline_candidates(left))


def _open_source(source: Texts, role: str, sections: tuple[str, ...] = ()) -> ReportTable | Source:
    """A file with its rows; a corpus (for references alone) and texts in memory as the source that they are."""
    if not isinstance(source, (str, os.PathLike)):
        return _in_memory(source, role)
    # A report in the place of a path; the system itself refuses names that are too long, with another error.
    is_text = isinstance(source, str) and (
        any(c.isspace() for c in source) or not source or len(source) > _LONGEST_NAME
    )
    if is_text and not (source and os.path.exists(source)):
        raise DataError(
            f"{short_repr(source)} is not a file or folder; put single reports into a list, or check the path."
        )
    path = Path(source)
    if not path.is_dir():
        return ReportTable(str(path), path, tuple(row for _, row in read_rows(path)))
    if role == "references" and (path / STUDIES).is_file():
        corpus = load_corpus(path)
        references = {}
        for study in corpus.studies():
            report = study.sections or Report()
            references[study.id] = Reference(
                id=study.id,
                text=_join([report.section(name) for name in sections]),
                patient=study.patient,
                # The exact findings are the image's truth: an impression repeats only some and is not measured by them.
                findings=study.findings if "findings" in sections else None,
                context=Context(None if study.age is None else float(study.age), report.indication),
                sex=study.sex,
                views=tuple(image.view and image.view.value for image in study.images),
                split=study.split,
                aliases=tuple(map(str, study.extra.get(ALIASES) or ())),
            )
        return Source(str(path), references, synthetic=corpus.card.synthetic)
    file = path / PREDICTIONS
    if not file.is_file() and (path / STUDIES).is_file():
        raise DataError(f"{path} is a corpus, not predictions; name a file or a run with {PREDICTIONS}.")
    if not file.is_file():
        raise DataError(
            f"{path} is neither a corpus ({STUDIES}) nor a run with {PREDICTIONS}; name a file or one of these."
        )
    if state(path) in ("running", "interrupted"):
        raise DataError(
            f"{path} is a run that has not finished, so its predictions are not complete; "
            f"{explain_how_to_finish(path)}, or name {file} itself."
        )
    return ReportTable(str(path), file, tuple(row for _, row in read_rows(file)))


def _in_memory(source: Any, role: str) -> Source:
    numbered = not isinstance(source, Mapping)
    if isinstance(source, Set) or not isinstance(source, Iterable):
        raise DataError(
            f"the {role} are {short_repr(source)}; give a list of reports, a mapping of id to report, or a path."
        )
    if numbered and not isinstance(source, Sequence):
        source = list(source)  # a column of a data frame, an array, a generator
    pairs = [(str(place), text) for place, text in enumerate(source, 1)] if numbered else list(source.items())
    keys = [parse_id(key, role) for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise DataError(f"the {role} use the id '{next(k for k in keys if keys.count(k) > 1)}' twice.")
    place = f"{role}, report" if numbered else f"{role}, id"
    texts = {key: parse_report(text, f"{place} {key}") for key, (_, text) in zip(keys, pairs, strict=True)}
    if role == "predictions":
        return Source(f"the {role}", texts, numbered)
    return Source(f"the {role}", {key: Reference(key, text, key) for key, text in texts.items()}, numbered)


def _check_no_ids(*sides: ReportTable | Source) -> None:
    """Refuse --by-row for runs, corpora and mappings, whose reports have ids."""
    for side in sides:
        if side.is_run if isinstance(side, ReportTable) else not side.numbered:
            raise ConfigError(f"--by-row matches two files row by row, and {side.name} has ids; leave --by-row out.")


def _id_columns(side: ReportTable | Source, named: Mapping[str, str]) -> IdColumns:
    """The columns of a side that may hold its ids."""
    if isinstance(side, Source):
        return IdColumns(side.name, {} if side.numbered else {ID: tuple(side.items)})
    if (column := find_named_id_column(side, named)) is not None:
        return IdColumns(side.name, {column: tuple(read_id(row, column) for row in side.rows)}, side.rows)
    return IdColumns(side.name, find_id_columns(side.rows), side.rows)


def _references(
    side: ReportTable,
    file: ReportFile,
    sections: tuple[str, ...],
    named: Mapping[str, str],
    candidate: str | None = None,
) -> Source:
    columns = choose_reference_columns(side, sections, named, candidate)
    items = {row.id: _reference_of_row(row, sections, columns) for row in file.rows}
    return Source(side.name, items, file.numbered, column=file.column, reports=columns)


def _candidates(
    rows: Iterable[Row], column: str, sections: Sequence[str]
) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Id → generated report, and what was read; of ReXrank's predictions the sections that are scored."""
    texts = {row.id: row.text(column) for row in rows}
    if normalise_name(column) != MODEL_PREDICTION:
        return texts, (column,)
    chosen = {key: select_sections(text, sections) for key, text in texts.items()}
    return chosen, (column if chosen == texts else f"{JOIN.join(sections)} of {column}",)


def _predictions(side: ReportTable, file: ReportFile, named: Mapping[str, str], sections: Sequence[str] = ()) -> Source:
    column = choose_candidate_column(side, named)
    items, reports = _candidates(file.rows, column, sections)
    if not side.is_run:
        return Source(side.name, items, file.numbered, column=file.column, reports=reports)
    run = side.path.parent
    controls = {control: run / control_file(control) for control in CONTROL_IMAGES}
    missing = read_missing_studies(run) if state(run) == "finished" else None
    summary = read_json(run / SUMMARY) if (run / SUMMARY).is_file() else {}
    cautions = summary.get(CAUTIONS) if isinstance(summary, dict) else None
    return Source(
        side.name,
        items,
        file.numbered,
        expected=None if missing is None else frozenset(items) | missing,
        control_reports={
            control: read_predictions(path).items
            for control, path in controls.items()
            if path.is_file() and path.stat().st_size > 0
        },
        column=file.column,
        reports=(column,),
        missing=missing or frozenset(),
        cautions=tuple(map(str, cautions)) if isinstance(cautions, list) else (),
    )


def parse_sections(section: str) -> tuple[str, ...]:
    """The names in `findings` or `findings+impression`."""
    names = tuple(name.strip() for name in section.split(JOIN))
    for name in names:
        if name not in SECTIONS:
            raise ConfigError(
                f"'{name}' is not a section of a report.{did_you_mean(name, SECTIONS)} Sections: {', '.join(SECTIONS)}; "
                f"several are joined with {JOIN}."
            )
    return names


def _reference_of_row(row: Row, sections: tuple[str, ...], columns: Sequence[str]) -> Reference:
    values = row.values
    try:
        exact = values.get("findings")
        findings = tuple(map(Finding.from_json, exact)) if isinstance(exact, list) and "findings" in sections else None
        report = Report.from_json(values["sections"]) if isinstance(values.get("sections"), Mapping) else None
    except DataError as error:
        raise DataError(f"{row.place}: {error}") from None
    if report is not None:
        text, indication = _join([report.section(name) for name in sections]), report.indication
    else:
        text, indication = _join([row.text(name) for name in columns or ("report",)]), values.get("indication")
    column = next((name for kind in PATIENT_NAMES for name in values if normalise_name(name) == kind), "patient")
    patient = values.get(column)
    unknown = is_missing(patient) or (isinstance(patient, str) and not patient.strip())
    views: tuple[str | None, ...] | None = None
    if isinstance(images := values.get("images"), list):
        views = tuple(parse_view(image.get("view")) for image in images if isinstance(image, dict))
    elif view := parse_view(values.get("view")):
        views = (view,)
    return Reference(
        id=row.id,
        text=text,
        patient=row.id if unknown else read_id(row, column) or parse_id(patient, f"{row.place}, {column}"),
        findings=findings,
        context=Context(parse_age(values.get("age"), row.place), indication if isinstance(indication, str) else None),
        sex=parse_sex(values.get("sex")),
        views=views,
        split=str(values["split"]) if values.get("split") else None,
    )


def _join(parts: Iterable[str | None]) -> str | None:
    known = [part for part in parts if part is not None]
    return " ".join(known) if known else None


def find_report_view(reference: Reference, image: int | None) -> str | None:
    """The view that a report was written from: that of the named image, else the frontal one a model is given."""
    views = reference.views or ()
    if image is not None:
        return views[image] if image < len(views) else None
    return next((view.value for view in FRONTAL if view.value in views), views[0] if len(views) == 1 else None)


_RETRIEVAL = "retrieval:"


def describe_reports(source: Path, about: EgressData) -> EgressData:
    """Generated reports: in a run folder synthetic as their corpus is, unless copied from real ones.

    A file may hold anything, and a run without a summary too.
    """
    try:
        summary = read_json(source / SUMMARY) if about.synthetic and source.is_dir() else None
        model = str(summary.get("model") or "") if isinstance(summary, dict) else ""
        copied = model.startswith(_RETRIEVAL)
        synthetic = load_corpus(model.removeprefix(_RETRIEVAL)).card.synthetic if copied else bool(model)
    except DataError:  # there is no summary, or the corpus is gone
        synthetic = False
    return EgressData(str(source), synthetic)
