"""References and predictions brought together, id by id: no report is dropped, doubled or paired with a stranger's."""

from __future__ import annotations

import hashlib
import os
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.endpoints import EgressData
from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.protocols import CAUTIONS
from cxrlab.core.records import SECTIONS, Finding, Report, Study
from cxrlab.core.runs import state
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.views import FRONTAL
from cxrlab.evaluation.config import CONTROL_IMAGES
from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY, control_file, explain_how_to_finish, read_missing_studies
from cxrlab.evaluation.report_files import (
    CANDIDATE_NAMES,
    ID,
    PATIENT_NAMES,
    REFERENCE_NAMES,
    TABLES,
    ReportFile,
    Row,
    assign_ids,
    classify_column,
    find_column,
    find_id_columns,
    find_text_columns,
    is_missing,
    list_columns,
    normalise_name,
    parse_age,
    parse_columns,
    parse_id,
    parse_report,
    parse_sex,
    parse_view,
    read_id,
    read_rows,
)
from cxrlab.metrics.pairs import Context, Pair


@dataclass(frozen=True)
class Attributes:
    """What a pair is sliced by; None where it is not known.

    Args:
        view: View of the image that was read, such as PA.
        sex: F or M.
        age: Years.
        device: Whether the reference names a device that is in place.
    """

    view: str | None = None
    sex: str | None = None
    age: float | None = None
    device: bool | None = None


Unit = Literal["auto", "study", "image"]


@dataclass(frozen=True)
class Inputs:
    """What is scored.

    Args:
        pairs: In the order of the references.
        attributes: Of each pair's patient and image; whether a device is there is not known yet.
        digest: SHA-256 of every id and text, by which a finished run is recognised.
        control_reports: Kind of wrong image → id → report, where the run of predictions has such a control.
        egress_data: Both sides, for the check before anything is sent to a model elsewhere.
        matching: How the rows of both sides were matched, for `scores.json`.
        cautions: Those of the run that wrote the predictions.
    """

    pairs: tuple[Pair, ...]
    attributes: tuple[Attributes, ...]
    digest: str
    control_reports: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    egress_data: tuple[EgressData, ...] = field(default=(EgressData("these reports", synthetic=False),), compare=False)
    matching: Mapping[str, Any] = field(default_factory=dict, compare=False)
    cautions: tuple[str, ...] = ()


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
) -> Inputs:
    """Read both sides and match them.

    Args:
        references: Corpus folder, file, list of reports, or mapping of id to report.
        predictions: Run folder, file, list or mapping; None when the references' file has a `candidate` beside each.
        section: Of the reference report, where it has sections; several joined with `+`.
        split: Of the corpus; left out, every split that holds a predicted study.
        unit: `study`, or `image` for predictions with ids `study#k`; `auto` looks at the ids.
        allow_missing: Score a missing prediction as an empty report instead of refusing; a run of `generate` that was
            allowed to finish without some studies needs no further permission for these.
        columns: `ROLE=NAME` (candidate, reference, id), for files with columns of other names.
        by_row: Match two files row by row, whatever ids they have.

    A prediction without a reference is refused always: nobody can say what it should have been.
    """
    if unit not in typing.get_args(Unit):
        raise ConfigError(f"the unit is {unit!r}; choose one of {', '.join(typing.get_args(Unit))}.")
    told, said = read_sources(references, predictions, section, columns, by_row=by_row)
    _check_ids_comparable(told, said)
    homes = _homes(told, said, unit)
    wanted = _wanted(told, said, homes, split)
    _check_matched(told, said, homes, wanted, allow_missing)
    images: dict[str, list[tuple[str, int | None]]] = {}
    for key, (study, image) in homes.items():
        images.setdefault(study, []).append((key, image))
    pairs, attributes = [], []
    for study in wanted:
        reference = told.items[study]
        # Order of the references, and within a study that of its images: the order of the predictions never matters.
        for key, image in sorted(images.get(study, [(study, None)]), key=lambda item: item[1] or 0):
            pairs.append(_pair(key, reference, said.items.get(key)))
            attributes.append(
                Attributes(find_report_view(reference, image), reference.sex, reference.context.age, None)
            )
    digest = inputs_digest(pairs, attributes)
    if said.control_reports:
        digest = hashlib.sha256(f"{digest} {said.control_reports!r}".encode("utf-8", "surrogatepass")).hexdigest()
    there = sum(pair.id in said.items for pair in pairs)
    return Inputs(
        tuple(pairs),
        tuple(attributes),
        digest,
        said.control_reports,
        _egress_data(told, said, predictions),
        _matching(told, said, there, len(pairs) - there),
        said.cautions,
    )


def _matching(told: Source, said: Source, matched: int, missing: int) -> dict[str, Any]:
    """How the rows were matched and how many, with the columns that were read."""
    same = said.name == told.name
    sides = {"references": told, "predictions": said}
    return {
        "by": "file" if same else "row" if told.numbered else "id",
        **{
            name: {"rows": len(side.items), "id": side.column, "report": list(side.reports)}
            for name, side in sides.items()
        },
        "matched": matched,
        "missing": missing,
    }


def _egress_data(told: Source, said: Source, predictions: Texts | None) -> tuple[EgressData, ...]:
    """Both sides, once each; texts in memory are taken for a patient's, as those of a plain file are."""
    about = EgressData(told.name, told.synthetic)
    if said.name == told.name:
        return (about,)
    if isinstance(predictions, (str, os.PathLike)):
        return about, describe_reports(Path(predictions), about)
    return about, EgressData(said.name, synthetic=False)


def inputs_digest(pairs: Iterable[Pair], attributes: Iterable[Attributes]) -> str:
    """SHA-256 of ids, patients, texts, exact findings and what the slices are made by, in order."""
    found = hashlib.sha256()
    for pair, known in zip(pairs, attributes, strict=True):
        told = (pair.id, pair.patient, pair.reference, pair.candidate, pair.findings, pair.context, known)
        found.update(repr(told).encode())
    return found.hexdigest()


def _pair(key: str, reference: Reference, candidate: str | None) -> Pair:
    return Pair(key, reference.text, candidate, reference.patient, reference.findings, reference.context)


def _check_ids_comparable(told: Source, said: Source) -> None:
    if not told.items:
        raise DataError(f"there is nothing to score: {told.name} hold no report.")
    if told.numbered and said.numbered and len(told.items) != len(said.items):
        raise DataError(
            f"there are {len(told.items)} reports in {told.name} and {len(said.items)} in {said.name}; row by row the "
            "first belongs to the first and so on, so both need equally many."
        )
    if told.numbered != said.numbered:
        bare, named = (told, said) if told.numbered else (said, told)
        column = f" (column '{named.column}')" if named.column else ""
        raise DataError(
            f"reports have ids in {named.name}{column} and none in {bare.name}; give both ids, name the column that "
            "holds them with --columns id=NAME, or match two files of equal length row by row with --by-row."
        )


def _homes(told: Source, said: Source, unit: Unit) -> dict[str, tuple[str, int | None]]:
    """Prediction id → (study, image); an id that fits nothing is its own study, and refused later."""
    homes: dict[str, tuple[str, int | None]] = {}
    for key in said.items:
        study, image = split_image_id(key)
        exact = key in told.items and unit != "image"
        homes[key] = (
            (key, None) if exact or unit == "study" or image is None or study not in told.items else (study, image)
        )
    whole = [key for key, (_, image) in homes.items() if image is None and key in told.items]
    if whole and unit == "image":
        raise DataError(
            f"'{whole[0]}' in {said.name} is a whole study; --unit image scores single images, named study#0, study#1, …"
        )
    single = [key for key, (_, image) in homes.items() if image is not None]
    if whole and single:
        raise DataError(
            f"{said.name} has predictions for whole studies ('{whole[0]}') and for single images ('{single[0]}'); "
            "keep to one kind, or choose with --unit."
        )
    for key in single:
        study, image = homes[key]
        views = told.items[study].views
        if views is not None and image is not None and image >= len(views):
            raise DataError(
                f"'{key}' in {said.name} is image {image} of study '{study}', which has {len(views)} (from 0)."
            )
    return homes


def _wanted(told: Source, said: Source, homes: Mapping[str, tuple[str, int | None]], split: str | None) -> list[str]:
    """Studies that must have a prediction, in the order of the references."""
    studies: Mapping[str, Reference] = told.items
    if split is not None:
        chosen = [key for key, item in studies.items() if item.split == split]
        if not chosen:
            held = sorted({item.split or "none" for item in studies.values()})
            raise DataError(f"{told.name} has no study in the split '{split}' (splits there: {', '.join(held)}).")
        return chosen
    if said.expected is not None:
        asked = {split_image_id(key)[0] if key not in studies else key for key in said.expected}
        return [key for key in studies if key in asked]
    splits = {studies[study].split for study, _ in homes.values() if study in studies}
    return [key for key, item in studies.items() if item.split in splits]


def _check_matched(
    told: Source,
    said: Source,
    homes: Mapping[str, tuple[str, int | None]],
    wanted: list[str],
    allow_missing: bool,
) -> None:
    places = set(wanted)
    extra = [key for key, (study, _) in homes.items() if study not in places]
    if len(extra) == len(homes):
        raise DataError(
            f"no prediction of {said.name} belongs to a reference of {told.name} "
            f"(predictions{_column(said)}: {_examples(extra)}; references{_column(told)}: "
            f"{_examples(wanted or list(told.items))}); check the ids, or name their column with --columns id=NAME."
        )
    there = {study for study, _ in homes.values()}
    missing = [key for key in wanted if key not in there]
    problems = []
    if extra:
        problems.append(
            f"{len(extra)} of {len(homes)} predictions have no reference (for example {_examples(extra)}); "
            "take them out, or name the references they belong to"
        )
    missing = [key for key in missing if key not in said.lost]
    if missing and not allow_missing:
        problems.append(
            f"{len(missing)} of {len(wanted)} references have no prediction (for example {_examples(missing)}); "
            "add them, or score them as empty reports with --allow-missing"
        )
    if problems:
        raise DataError(f"{told.name} and {said.name} do not match: {'; '.join(problems)}.")


def _column(side: Source) -> str:
    return f", column '{side.column}'" if side.column else ""


def _examples(keys: list[str], most: int = 3) -> str:
    return ", ".join(f"'{key}'" for key in keys[:most])


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
        control_reports: Kind of wrong image → id → report, of a run that answered some studies with wrong images.
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
    control_reports: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    synthetic: bool = False
    column: str | None = None
    reports: tuple[str, ...] = ()
    lost: frozenset[str] = frozenset()
    cautions: tuple[str, ...] = ()


def read_references(source: Texts, section: str = "findings") -> Source:
    """References from a corpus folder, a file, a run with predictions, a list or a mapping."""
    sections = parse_sections(section)
    path = _path(source)
    if path is None:
        return _in_memory(source, "references", lambda key, text: Reference(key, text, key))
    if _is_corpus(path):
        corpus = load_corpus(path)
        items = {study.id: _of_study(study, sections) for study in corpus.studies()}
        return Source(str(path), items, synthetic=corpus.card.synthetic)
    file = _open(path)
    return _references(file, assign_ids(file.path, file.rows), sections, {})


def read_predictions(source: Texts) -> Source:
    """Predictions from a run folder, a file, a list or a mapping."""
    path = _path(source)
    if path is None:
        return _in_memory(source, "predictions", lambda _, text: text)
    file = _open(path)
    return _predictions(file, assign_ids(file.path, file.rows), {})


def read_sources(
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
    sections, called = parse_sections(section), parse_columns(columns)
    told = _side(references, lambda: read_references(references, section), corpus=True)
    same = isinstance(told, _File) and str(predictions) == told.name
    if predictions is None or (same and isinstance(told, _File) and ("candidate" in called or _beside(told))):
        return _of_one_file(told, sections, called, by_row)
    said = _side(predictions, lambda: read_predictions(predictions))
    left, right = _id_pair(told, said, called, by_row)
    if isinstance(told, _File):
        told = _references(told, assign_ids(told.path, told.rows, left, by_row=left is None), sections, called)
    if isinstance(said, _File):
        said = _predictions(said, assign_ids(said.path, said.rows, right, by_row=right is None), called)
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
    column = find_column(list_columns(side.rows), called["id"]) if "id" in called else None
    file = assign_ids(side.path, side.rows, column, by_row=by_row)
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
    same = [(one, two) for one in left for two in right if normalise_name(one) == normalise_name(two)]
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
    name = None if called is None else find_column(list_columns(side.rows), called)
    return find_id_columns(side.rows) if name is None else {name: tuple(read_id(row, name) for row in side.rows)}


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
            ids |= {name: tuple(read_id(row, name) for row in side.rows) for name in _telling(side.rows)}
    return [(one, two) for one in left for two in right if normalise_name(one) == normalise_name(two)]


def _numbers_rows(ids: Sequence[str | None]) -> bool:
    """Whether these are 0, 1, 2 … or 1, 2, 3 …, as data frames and spreadsheets number their rows."""
    return any(all(key == str(number) for number, key in enumerate(ids, first)) for first in (0, 1))


def _check_order(told: _File, said: _File) -> None:
    """Refuse to match by position where a column of both files has the same values in another order."""
    names = {normalise_name(name): name for name in list_columns(told.rows)}
    for two in list_columns(said.rows):
        one = names.get(normalise_name(two))
        if one is None or classify_column(two) in (*CANDIDATE_NAMES, *REFERENCE_NAMES, "report", *DEFAULT_SECTIONS):
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
    for name in list_columns(rows):
        ids = tuple(read_id(row, name) for row in rows)
        known = classify_column(name) in (*CANDIDATE_NAMES, *REFERENCE_NAMES, "report", *_NO_IDS)
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
    if "id" in called and not any(find_column(list_columns(side.rows), called["id"]) for side in sides):
        columns = "; ".join(", ".join(list_columns(side.rows)) for side in sides) or "none"
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
    files = {control: run / control_file(control) for control in CONTROL_IMAGES}
    wrong = {control: read_predictions(file).items for control, file in files.items() if _holds_text(file)}
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
    texts = {name: classify_column(name) for name in find_text_columns(side.rows) if name != candidate}
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
    texts = {name: classify_column(name) for name in find_text_columns(side.rows)}
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
    texts = {name: classify_column(name) for name in find_text_columns(side.rows)}
    if found := [name for name, kind in texts.items() if kind in CANDIDATE_NAMES]:
        return found
    # `report` is the generated one only where something else is clearly the reference.
    sections = [name for name, kind in texts.items() if kind in SECTIONS]
    known = len(sections) == 1 or any(kind in REFERENCE_NAMES for kind in texts.values())
    return [name for name, kind in texts.items() if kind == "report" and known]


def _called_column(side: _File, called: Mapping[str, str], role: str) -> str:
    """The column that --columns names for a role."""
    if (column := find_column(list_columns(side.rows), called[role])) is None:
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
    return ", ".join(name or "(without a name)" for name in list_columns(side.rows))


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


def _path(source: Texts) -> Path | None:
    """The path that is meant; None for texts in memory. A report in the place of a path is refused as such."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    # A text longer than any path may be, too, would be an error of the system further on.
    is_text = isinstance(source, str) and (any(c.isspace() for c in source) or not source or len(source) > _LONGEST)
    if is_text and not (source and os.path.exists(source)):
        raise DataError(
            f"{short_repr(source)} is no file or folder; put single reports into a list, or check the path."
        )
    return Path(source)


def _in_memory(source: Any, name: str, make: Any) -> Source:
    numbered = not isinstance(source, Mapping)
    if isinstance(source, Set) or not isinstance(source, Iterable):
        raise DataError(
            f"the {name} are {short_repr(source)}; give a list of reports, a mapping of id to report, or a path."
        )
    if numbered and not isinstance(source, Sequence):
        source = list(source)  # a column of a data frame, an array, a generator
    pairs = [(str(place), text) for place, text in enumerate(source, 1)] if numbered else list(source.items())
    keys = [parse_id(key, name) for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise DataError(f"the {name} use the id '{next(k for k in keys if keys.count(k) > 1)}' twice.")
    place = f"{name}, report" if numbered else f"{name}, id"
    texts = [parse_report(text, f"{place} {key}") for key, (_, text) in zip(keys, pairs, strict=True)]
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
            f"{path} is a run that has not finished, so its predictions are not complete; {explain_how_to_finish(path)}, or "
            f"name {path / PREDICTIONS} itself."
        )
    return path / PREDICTIONS


def _lost(run: Path) -> frozenset[str] | None:
    """Studies without a prediction with which `generate --allow-missing` finished; None when the run tells nothing."""
    return read_missing_studies(run) if state(run) == "finished" else None


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
    column = next((name for kind in PATIENT_NAMES for name in values if normalise_name(name) == kind), "patient")
    patient = values.get(column)
    without = is_missing(patient) or (isinstance(patient, str) and not patient.strip())
    return Reference(
        id=row.id,
        text=text,
        patient=row.id if without else read_id(row, column) or parse_id(patient, f"{row.place}, {column}"),
        findings=findings,
        context=Context(parse_age(values.get("age"), row.place), indication if isinstance(indication, str) else None),
        sex=parse_sex(values.get("sex")),
        views=_views(values),
        split=str(values["split"]) if values.get("split") else None,
    )


def _joined_cells(row: Row, columns: Sequence[str]) -> str | None:
    parts = [text for name in columns if (text := row.text(name)) is not None]
    return " ".join(parts) if parts else None


def _views(values: Mapping[str, Any]) -> tuple[str | None, ...] | None:
    images = values.get("images")
    if isinstance(images, list):
        return tuple(parse_view(image.get("view")) for image in images if isinstance(image, dict))
    word = parse_view(values.get("view"))
    return (word,) if word else None


def _joined(report: Report, sections: tuple[str, ...]) -> str | None:
    parts = [text for name in sections if (text := report.section(name)) is not None]
    return " ".join(parts) if parts else None


def find_report_view(reference: Reference, image: int | None) -> str | None:
    """The view that a report was written from: that of the named image, else the frontal one a model is given."""
    views = reference.views or ()
    if image is not None:
        return views[image] if image < len(views) else None
    return next((view.value for view in FRONTAL if view.value in views), views[0] if len(views) == 1 else None)


_RETRIEVAL = "retrieval:"


def describe_reports(source: Path, about: EgressData) -> EgressData:
    """Reports that a model wrote.

    In a run folder they are what its corpus is, unless they were copied from another one; a file may hold anything.

    Args:
        source: Run folder or file.
        about: The corpus that they were written about.
    """
    return EgressData(str(source), about.synthetic and source.is_dir() and _copied_from_none(source))


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
