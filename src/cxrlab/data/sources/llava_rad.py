"""LLaVA-Rad's annotations of MIMIC-CXR: its findings texts by rules and by GPT-4, for AP and PA images.

Counts: published image-text pairs: train 162,969 by rules and 237,073 by GPT-4, dev 1,286 and 1,952, test 2,461 by rules;
    patients with an AP or PA image 63,169, 487 and 289.
Views: AP and PA; rows of other views are left out, as its loaders do.
Labels: those that the files give per image (chexpert_labels); of several images of a study the stronger.
Language: English. sections is the text by rules (MIMIC-CXR's official ones), structured.gpt4 the text by GPT-4; the
    indication of both is the files' 'reason', which its prompts contain. extra.annotation holds 'indication' and
    'history', which they do not.
Licence: PhysioNet Credentialed Health Data License 1.5.0: credentialed users only, no sharing, no re-identification.
Citation: Zambrano Chaves et al., LLaVA-Rad MIMIC-CXR Annotations 1.0.0, PhysioNet 2025; Johnson et al., MIMIC-CXR, a
    de-identified publicly available database of chest radiographs with free-text reports, Scientific Data 2019.
Obtain: PhysioNet: llava-rad-mimic-cxr-annotation (chat_train, chat_dev and chat_test_MIMIC_CXR_all_gpt4extract_rulebased
    _v1.json) and MIMIC-CXR-JPG. Root is the folder of MIMIC-CXR-JPG, --annotations that of the three files.
Defects: the files have a text per image and a corpus one per study and method: where images of a study differ the first
    text counts, and an image without the text gets that of the study; both are counted. GPT-4's text of a test study is
    left out. Whole reports, laterals, dates, age and sex are not in the files. Reading takes about five times their size
    in memory.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_text
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import CHEXPERT_14, View
from cxrlab.data import source_tables
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus_writer import Dropped
from cxrlab.data.importing import Imported, ImportPlan

FILES = {"train": "chat_train_MIMIC_CXR*.json", "val": "chat_dev_MIMIC_CXR*.json", "test": "chat_test_MIMIC_CXR*.json"}
BY_RULES = "rule-based"
OTHER_VIEW = "row of another view than AP and PA, left out"
NO_FINDINGS = "row without a findings text, left out"
MODEL_TEXT_IN_TEST = "row of the test split with a language model's text, left out"
TEXTS_DIFFER = "images of the study have different texts by one method; the first counts"
TEXT_OF_OTHER_IMAGE = "image without a text of its own by a method; that of the study's other images counts"
_IMAGE = re.compile(r"(?:mimic/)?(?:files/)?(p\d\d/p(\d+)/s(\d+)/[\w.-]+\.jpg)")
_SPLIT_NAMES = {"train": "train", "val": "dev", "test": "test"}


def plan(config: ImportConfig) -> ImportPlan[AnnotatedStudy]:
    """The studies of the train, dev and test file, in the order in which they first appear."""
    source_tables.chosen_layout(config, ("json",))
    folder = config.annotations or config.root
    tables = {split: source_tables.find_optional(folder, name) for split, name in FILES.items()}
    if not any(tables.values()):
        raise DataError(
            f"{folder} holds none of {', '.join(FILES.values())}; give the folder of LLaVA-Rad's annotations with "
            "--annotations."
        )
    # Some keep the folders p10 to p19 in the root itself.
    apart = not (config.root / "files").is_dir() and next(config.root.glob("p1[0-9]"), None) is not None
    studies: dict[str, AnnotatedStudy] = {}
    remarks = Counter[str]()
    for split, table in tables.items():
        if table is not None:
            _read_annotations(table, split, "" if apart else "files/", studies, remarks)
    return ImportPlan(
        items=studies.values(),
        study_id=attrgetter("id"),
        read=read,
        total=len(studies),
        layout=", ".join(_SPLIT_NAMES[split] for split, table in tables.items() if table is not None),
        collections=("beth-israel",),
        remarks={remark: count for remark, count in remarks.items() if count},
        used_settings=("annotations",),
    )


def read(study: AnnotatedStudy) -> Imported | Dropped:
    """One study with its texts."""
    by_rules = study.texts.get(BY_RULES)
    methods = {method: text for method, text in study.texts.items() if method != BY_RULES}
    remarks = source_tables.present_remarks(
        TEXTS_DIFFER if study.texts_differ else None,
        TEXT_OF_OTHER_IMAGE
        if any(with_text != study.images.keys() for with_text in study.images_with.values())
        else None,
    )
    imported = Study(
        id=study.id,
        patient=study.patient,
        images=tuple(ImageFile(path, view) for path, view in study.images.items()),
        sections=Report(**by_rules) if by_rules else None,
        split=study.split,
        labels=source_tables.known_labels(study.labels) if study.labels else {},
        structured=methods,
        extra={"annotation": study.other} if study.other else {},
    )
    return Imported(imported, remarks)


@dataclass(slots=True)
class AnnotatedStudy:
    """One study of the files, filled row by row: its images with their views, and method → section → text."""

    id: str
    patient: str
    split: str
    images: dict[str, View] = field(default_factory=dict)
    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    images_with: dict[str, set[str]] = field(default_factory=dict)
    texts_differ: bool = False
    labels: source_tables.LabelVector | None = None
    other: dict[str, str] = field(default_factory=dict)


def _read_annotations(
    table: Path, split: str, folder: str, studies: dict[str, AnnotatedStudy], remarks: Counter[str]
) -> None:
    """Add the rows of one file that LLaVA-Rad's loaders keep; the others are counted in `remarks`."""
    try:
        rows = json.loads(read_text(table))
    except ValueError as error:
        raise DataError(f"{table} is not JSON ({error}); fetch it again.") from None
    if not isinstance(rows, list):
        raise DataError(f"{table} is not a list of annotations; fetch it again.")
    for number, row in enumerate(rows):
        place = f"{table}, entry {number}"
        image = _IMAGE.fullmatch(str(row.get("image"))) if isinstance(row, dict) else None
        if image is None:
            raise DataError(f"{place} has no 'image' such as mimic/p10/p10000032/s50414267/NAME.jpg; fetch it again.")
        view, method, findings = row.get("view"), str(row.get("generate_method")), _findings(row, place)
        if view not in (View.AP, View.PA):
            remarks[OTHER_VIEW] += 1
        elif findings is None:
            remarks[NO_FINDINGS] += 1
        elif split == "test" and method != BY_RULES:
            remarks[MODEL_TEXT_IN_TEST] += 1
        else:
            path, patient, number_of_study = folder + image[1], f"p{image[2]}", f"s{image[3]}"
            study = studies.setdefault(number_of_study, AnnotatedStudy(number_of_study, patient, split))
            if (study.patient, study.split) != (patient, split):
                raise DataError(
                    f"{place}: study {study.id} is listed under another patient or split too; fetch the files again."
                )
            study.images[path] = View(view)
            study.images_with.setdefault(method, set()).add(path)
            sections = {
                "findings": findings,
                "impression": _text(row, "impression"),
                "indication": _text(row, "reason"),
            }
            known = {name: text for name, text in sections.items() if text}
            study.texts_differ |= study.texts.setdefault(method, known) != known
            study.other |= {name: text for name in ("indication", "history") if (text := _text(row, name))}
            if isinstance(labels := row.get("chexpert_labels"), dict):
                cells = {name: "" if labels.get(name) is None else str(labels[name]) for name in CHEXPERT_14}
                vector = source_tables.label_vector(cells, place)
                study.labels = vector if study.labels is None else source_tables.merge_labels(study.labels, vector)


def _findings(row: Mapping[str, Any], place: str) -> str | None:
    """The answer of the conversation, which is the findings text; None where it is empty or not-a-number."""
    turns = row.get("conversations")
    if not (isinstance(turns, list) and len(turns) > 1 and isinstance(turns[1], dict)):
        raise DataError(f"{place} has no second turn in 'conversations'; fetch the file again.")
    return _text(turns[1], "value")


def _text(row: Mapping[str, Any], key: str) -> str | None:
    """A text with white space collapsed; None where it is absent, empty or not-a-number."""
    value = row.get(key)
    return (" ".join(value.split()) or None) if isinstance(value, str) else None
