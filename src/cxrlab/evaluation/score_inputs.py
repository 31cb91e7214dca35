"""References and predictions brought together, id by id: no report is dropped, doubled or paired with a stranger's."""

from __future__ import annotations

import hashlib
import os
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.egress import Shown
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.evaluation.score_results import Attributes
from cxrlab.evaluation.score_sources import (
    Reference,
    Source,
    Texts,
    report_view,
    shown_reports,
    sources_from,
    split_image_id,
)
from cxrlab.metrics.pairs import Pair

Unit = Literal["auto", "study", "image"]


@dataclass(frozen=True)
class Inputs:
    """What is scored.

    Args:
        pairs: In the order of the references.
        attributes: Of each pair's patient and image; whether a device is there is not known yet.
        digest: SHA-256 of every id and text, by which a finished run is recognised.
        wrong_images: Kind of wrong image → id → report, where the run of predictions has such a control.
        shown: Both sides, as whoever shows them to a model elsewhere must see them.
        matching: How the rows of both sides were matched, for `scores.json`.
        cautions: Those of the run that wrote the predictions.
    """

    pairs: tuple[Pair, ...]
    attributes: tuple[Attributes, ...]
    digest: str
    wrong_images: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    shown: tuple[Shown, ...] = field(default=(Shown("these reports", synthetic=False),), compare=False)
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
    told, said = sources_from(references, predictions, section, columns, by_row=by_row)
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
            attributes.append(Attributes(report_view(reference, image), reference.sex, reference.context.age, None))
    digest = inputs_digest(pairs, attributes)
    if said.wrong_images:
        digest = hashlib.sha256(f"{digest} {said.wrong_images!r}".encode("utf-8", "surrogatepass")).hexdigest()
    there = sum(pair.id in said.items for pair in pairs)
    return Inputs(
        tuple(pairs),
        tuple(attributes),
        digest,
        said.wrong_images,
        _shown(told, said, predictions),
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


def _shown(told: Source, said: Source, predictions: Texts | None) -> tuple[Shown, ...]:
    """Both sides, once each; texts in memory are taken for a patient's, as those of a plain file are."""
    about = Shown(told.name, told.synthetic)
    if said.name == told.name:
        return (about,)
    if isinstance(predictions, (str, os.PathLike)):
        return about, shown_reports(Path(predictions), about)
    return about, Shown(said.name, synthetic=False)


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
