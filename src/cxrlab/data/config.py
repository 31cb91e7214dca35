"""Settings of the data commands: every field is a flag of the command line and a key of a YAML file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cxrlab.core.config import check_at_least, check_choice, parse_group, raise_problems
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.core.records import SECTIONS, SPLITS
from cxrlab.data.phantom.acquisition_presets import PRESETS
from cxrlab.findings.lexicon import LEXICONS

# A hundred times the largest public corpus of chest radiographs; a larger number is a typing error.
MAX_STUDIES = 10_000_000
IMPORT_SPLITS = ("official", "patient", "train")


def _share(name: str, value: object) -> None:
    """Refuse anything but a number of [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}={value!r} is not usable; give a fraction from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class ContextConfig:
    """What a model receives of each study.

    Args:
        views: Views of a study that the model receives together, one image of each, in this order: frontal (PA before
            AP before frontal), lateral, PA, AP, other. One frontal image when left out.
        prior: What it receives of the prior study too: image (frontal, after the others) and report (its findings, in
            the prompt).
        missing: What happens to a study that lacks one of these: placeholder (when left out), the model receives what
            there is and the prompt states it; drop, the study is left out and counted. One without an image is always
            left out.
    """

    views: tuple[Literal["PA", "AP", "frontal", "lateral", "other"], ...] = ()
    prior: tuple[Literal["image", "report"], ...] = ()
    missing: Literal["placeholder", "drop"] | None = None

    def __post_init__(self) -> None:
        for name in ("views", "prior"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ConfigError(f"{name}={','.join(values)} names one twice; name each once.")

    def check_single_image(self) -> None:
        """Refuse a single view beside the frontal one, where one image of a study is always its frontal one."""
        if self.is_single and self.views not in ((), ("frontal",)):
            raise ConfigError(
                f"views={self.views[0]}: the one image of a study is its frontal one; leave --views out, or name it "
                f"beside the frontal view, as in --views frontal,{self.views[0]}."
            )

    @property
    def context(self) -> ContextConfig:
        """These settings alone."""
        return ContextConfig(views=self.views, prior=self.prior, missing=self.missing)

    @property
    def recorded(self) -> dict[str, tuple[str, ...]]:
        """Views and prior for the card of a model that is trained with them; empty for one image."""
        return {} if self.is_single else {"views": self.views, "prior": self.prior}

    @property
    def is_single(self) -> bool:
        """Whether a model receives one image of each study and nothing of its prior."""
        return len(self.views) <= 1 and not self.prior


@dataclass(frozen=True)
class PhantomConfig:
    """A corpus of synthetic chest radiographs whose truth is known.

    Args:
        n: Number of studies, at most ten million.
        size: Side of the square images in pixels, 32 to 2048.
        seed: The same seed gives the same bytes, whatever the number of workers.
        preset: How images are taken: standard, or shifted (other geometry, exposure and noise).
        faint: Share of findings drawn with low contrast from when they are first seen, 0 to 1.
        normal: Share of studies without any finding, 0 to 1.
        lexicon: Words of the reports: A (training) or B (held out).
        masks: Write an exact mask for each drawn finding.
        mistakes: Most mistakes in a second text of every train study, under structured as 'mistaken';
            a model that learns from it makes them too. 0 writes none.
        lateral: Draw a lateral image of each study too, as its second image.
        hidden: Share of small effusions and lower-zone opacities that lie behind the diaphragm or the heart, where
            the frontal image hardly shows them and the lateral one does, 0 to 1; needs lateral.
        workers: Processes; 0 for one per core, which is the maximum.
    """

    n: int = 1000
    size: int = 224
    seed: int = 7
    preset: str = "standard"
    faint: float = 0.05
    normal: float = 0.25
    lexicon: str = "A"
    masks: bool = True
    mistakes: int = 0
    lateral: bool = False
    hidden: float = 0.0
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(
            self, {"n": MAX_STUDIES, "mistakes": 8, "size": 2048}, n=1, mistakes=0, size=32, seed=0, workers=0
        )
        check_choice("preset", self.preset, PRESETS)
        _share("faint", self.faint)
        _share("normal", self.normal)
        _share("hidden", self.hidden)
        if self.hidden and not self.lateral:
            raise ConfigError(f"hidden={self.hidden} needs lateral images, which show what is hidden; add --lateral.")
        check_choice("lexicon", self.lexicon, LEXICONS)


@dataclass(frozen=True)
class ScenesConfig:
    """A corpus of small natural-looking colour pictures without any chest, with captions.

    Args:
        n: Number of pictures, at most ten million.
        size: Side of the square pictures in pixels, 32 to 2048.
        seed: The same seed gives the same bytes, whatever the number of workers.
        workers: Processes; 0 for one per core, which is the maximum.
    """

    n: int = 1000
    size: int = 128
    seed: int = 7
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, {"n": MAX_STUDIES, "size": 2048}, n=1, size=32, seed=0, workers=0)


@dataclass(frozen=True)
class ImportConfig:
    """How a downloaded data set becomes a corpus.

    Args:
        root: Folder of the data set as it was downloaded.
        layout: Which of several layouts to read, where a data set has more than one (see 'cxrlab data about'); found by
            itself when left out.
        reports: Folder or zip file with the reports, where they lie apart from the images (mimic-cxr).
        projections: Table of views (indiana_projections.csv), where it lies outside the folder (iu-xray, openi).
        sections: official cuts reports by MIMIC-CXR's own published rules, as LLaVA-Rad's references were; our rules when
            left out (mimic-cxr).
        annotations: Folder of LLaVA-Rad's annotation files, chat_train_…, chat_dev_… and chat_test_MIMIC_CXR_….json, where
            it lies outside the folder of the images (llava-rad).
        split: official (a study without one has none), patient (drawn by patient with the seed), or train (all of it);
            R2Gen's test studies stay in test with each (iu-xray, openi).
        seed: For split=patient.
        copy: Copy the images into the corpus instead of linking to the folder.
        workers: Processes; 0 for one per core, which is the maximum.
    """

    root: Path
    layout: str | None = None
    reports: Path | None = None
    projections: Path | None = None
    sections: Literal["official"] | None = None
    annotations: Path | None = None
    split: str = "official"
    seed: int = 7
    copy: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        check_choice("split", self.split, IMPORT_SPLITS)
        if self.sections is not None:
            check_choice("sections", self.sections, ("official",))
        check_at_least(self, seed=0, workers=0)


@dataclass(frozen=True, kw_only=True)
class CardConfig:
    """What the card of a corpus states about its data.

    Args:
        name: Name of the corpus; that of the table or folder when left out.
        source: Where the data come from.
        licence: What may be done with them.
        citation: What to cite.
        synthetic: Images and texts are generated; any other corpus counts as patients' data.
        collections: Hospital collections of the images; a corpus of the same collection is not external.
    """

    name: str | None = None
    source: str | None = None
    licence: str | None = None
    citation: str | None = None
    synthetic: bool = False
    collections: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OwnDataConfig(CardConfig):
    """How a table or a folder of one's own becomes a corpus.

    Args:
        columns: Meaning of the table's columns as ROLE=NAME, or auto for the guess that the command shows; image may
            have several columns, joined by +. ROLE=none takes a role away from auto.
        sheet: Sheet of an Excel file; the first when left out.
        split_names: Names of splits as NAME=SPLIT, for those other than train, val and test; SPLIT may be none.
        date_order: dmy or mdy, where the table writes dates such as 05/03/2024.
        seed: Decides the splits by patient, where the table has no split.
        copy: Copy the images into the corpus instead of linking to their folder.
        allow_missing_images: Keep studies whose images are not there.
        views_from_pixels: Decide unknown views (frontal or lateral) from the pixels.
        workers: Processes; 0 means one per core, the most there can be.
    """

    columns: tuple[str, ...] = ()
    sheet: str | None = None
    split_names: tuple[str, ...] = ()
    date_order: Literal["dmy", "mdy"] | None = None
    seed: int = 7
    copy: bool = False
    allow_missing_images: bool = False
    views_from_pixels: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        if self.date_order is not None:
            check_choice("date_order", self.date_order, ("dmy", "mdy"))
        check_at_least(self, seed=0, workers=0)


@dataclass(frozen=True, kw_only=True)
class TableConfig(OwnDataConfig):
    """How a table becomes a corpus.

    Args:
        images: Folder that the table's image paths are relative to; that of the table when left out.
    """

    images: Path | None = None


@dataclass(frozen=True, kw_only=True)
class DicomFolderConfig(OwnDataConfig):
    """How a folder of DICOM files becomes a corpus.

    Args:
        root: Folder with DICOM files of any names.
        reports: Table with reports, matched by StudyInstanceUID or AccessionNumber; without it, the structured reports
            among the DICOM files are read.
        pseudonyms: Replace the identifiers of studies and patients by keyed hashes, and copy the images under such
            names; the key is written beside the corpus.
    """

    root: Path
    reports: Path | None = None
    pseudonyms: bool = False


@dataclass(frozen=True)
class StructureConfig:
    """Clean sections beside the source's text, by rule or by a language model.

    Args:
        model: rules, or the name of a text model.
        split: Process only studies of this split (train or val); both, and studies without one, when left out.
        limit: Process only the first N studies; all when left out.
        prompt: YAML file with another prompt than the built-in one.
        mode: What happens to an answer that the checks doubt: strict repeats the request with the reasons and falls back
            on the rules, flag keeps the answer and records the doubts on the study and on the card.
        trial: The refusal rate of the first N reports is reported before another one is sent.
        max_refusals: Stop after these when a larger share of their first answers was refused; 1 never stops or waits.
        batch: Reports per task of a worker, and per batch of a model on this machine; a server gets each request as
            soon as another one is answered.
        retries: Number of repeated requests after a refused answer.
        max_tokens: Maximum number of tokens per answer.
        seed: Seed passed to the model; each further attempt at a report adds one.
        workers: Worker processes of the rules; 0 for one per core, which is the maximum.
        llm: Requests, cache and cost limit of the language model.
    """

    model: str = "rules"
    split: str | None = None
    limit: int | None = None
    prompt: Path | None = None
    mode: Literal["strict", "flag"] = "strict"
    trial: int = 200
    max_refusals: float = 0.2
    batch: int = 16
    retries: int = 2
    max_tokens: int = 1024
    seed: int = 7
    workers: int = 0
    llm: LLMConfig = LLMConfig()

    def __post_init__(self) -> None:
        if self.split is not None:
            check_choice("split", self.split, ("train", "val"))
        _share("max_refusals", self.max_refusals)
        check_at_least(self, limit=1, trial=1, batch=1, retries=0, seed=0, max_tokens=1, workers=0)


@dataclass(frozen=True)
class CheckConfig:
    """How a corpus is checked.

    Args:
        duplicates: Look for reports and images that are nearly the same; those that are the same are always counted.
        images: Images on the sheet of the page.
        seed: Which images are drawn for the sheet.
        workers: Processes; 0 for one per core, which is the maximum.
    """

    duplicates: bool = False
    images: int = 24
    seed: int = 7
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, {"images": 200}, images=1, seed=0, workers=0)


@dataclass(frozen=True)
class ScrubConfig:
    """What is done with images that may name a patient.

    Args:
        blank: Write copies with new headers and blanked text; without it, findings are only listed.
        markers: Blank side markers (L, R, with or without AP or PA) too.
        workers: Processes; 0 for one per core, which is the maximum.
    """

    blank: bool = False
    markers: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        check_at_least(self, workers=0)


@dataclass(frozen=True)
class SheetConfig:
    """A contact sheet: many pictures of a corpus on one page, with what is known of each beneath.

    Args:
        n: Number of studies shown; all of them when the corpus has fewer.
        columns: Pictures per row.
        seed: Which studies are drawn.
        split: Only studies of this split (train, val or test); every study when left out.
        masks: Outline the mask of each finding in colour.
        size: Side of each picture on the sheet in pixels, 32 to 2048.
    """

    n: int = 40
    columns: int = 8
    seed: int = 7
    split: str | None = None
    masks: bool = False
    size: int = 224

    def __post_init__(self) -> None:
        check_at_least(self, {"n": 2000, "columns": 50, "size": 2048}, n=1, columns=1, seed=0, size=32)
        if self.split is not None:
            check_choice("split", self.split, SPLITS)


# Which text of a study makes a pair; `structured:NAME` is that of one maker.
TEXTS = ("sections", "report", "structured")
STAGES = (1, 2, 3)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Paper:
    """What a paper counts, to be printed beside our own counts.

    Args:
        patients: Patients of the whole data set.
        images: Images of the whole data set.
        taken_patients: Patients of the part that is taken.
        taken_images: Images of the part that is taken.
        pairs: Pairs of image and text.
        words: Words per text of the pairs: least, most and mean.
    """

    patients: int | None = None
    images: int | None = None
    taken_patients: int | None = None
    taken_images: int | None = None
    pairs: int | None = None
    words: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Member:
    """One corpus of a composition, and the part of it that is taken.

    Args:
        corpus: Its folder.
        data_set: Name under which it is imported, for the command that imports it; the member's own name when left out.
        made_by: Command that makes the corpus, where that is not its import; shown when it is missing.
        splits: Splits taken; none for studies without one.
        views: Images kept (PA, AP, frontal, lateral, other); every image when left out. A study without any is left
            out.
        texts: Texts that make pairs with the images: sections (the source's), report (the whole as delivered),
            structured (any) or structured:NAME.
        section: Section of those texts; the whole for report.
        pair: all pairs an image with each of the texts, first with the first in the order of texts that the study has.
        needs_text: Leave out a study without any of the texts.
        n: Number of studies sampled from the remaining ones; all when left out.
        seed: Seed of this sample.
        stages: Stages of training that use this member.
        as_split: Split that the studies get; their own when left out. In test only the source's text is kept.
        folds: Number of folds for cross-validation, into which patients are drawn with the seed.
        fold: The fold, from 0, that becomes the test split; the next one is val, the others are train.
        paper: Counts of a paper, printed beside ours.
    """

    corpus: Path
    data_set: str | None = None
    made_by: str | None = None
    splits: tuple[Literal["train", "val", "test", "none"], ...] = ("train", "none")
    views: tuple[Literal["PA", "AP", "frontal", "lateral", "other"], ...] = ()
    texts: tuple[str, ...] = ("sections",)
    section: str = "findings"
    pair: Literal["all", "first"] = "all"
    needs_text: bool = True
    n: int | None = None
    seed: int = 7
    stages: tuple[int, ...] = STAGES
    as_split: Literal["train", "val", "test"] | None = None
    folds: int | None = None
    fold: int = 0
    paper: Paper = field(default_factory=Paper)

    def __post_init__(self) -> None:
        if not self.splits or not self.texts:
            raise ConfigError("'splits' and 'texts' must not be empty; name at least one each.")
        for text in self.texts:
            kind, colon, maker = text.partition(":")
            if kind not in TEXTS or (colon and (kind != "structured" or not maker)):
                raise ConfigError(
                    f"texts has '{text}'.{did_you_mean(text, TEXTS)} Use {', '.join(TEXTS)}, structured:NAME."
                )
        if self.section not in SECTIONS:
            hint = did_you_mean(self.section, SECTIONS)
            raise ConfigError(f"section='{self.section}' is unknown.{hint} Use one of {', '.join(SECTIONS)}.")
        if self.n is not None and self.n < 1:
            raise ConfigError(f"n={self.n} is not usable; give a whole number of at least 1.")
        if not self.stages or set(self.stages) - set(STAGES):
            raise ConfigError(f"stages={list(self.stages)} is not usable; list some of {', '.join(map(str, STAGES))}.")
        if self.folds is not None and (self.folds < 3 or not 0 <= self.fold < self.folds or self.as_split):
            raise ConfigError(
                f"folds={self.folds} with fold={self.fold} is not usable; give at least 3 folds, a fold from 0 to the last, "
                "and no as_split."
            )
        if (self.as_split == "test" or self.folds) and "structured" in {text.partition(":")[0] for text in self.texts}:
            raise ConfigError(
                "a test split (as_split=test or folds) and a structured text contradict each other; it holds the source's "
                "text alone."
            )


@dataclass(frozen=True)
class ComposeConfig:
    """One corpus out of several.

    Args:
        members: Name → settings of each member; see the files in configs/data.
        name: Name on the card of the new corpus.
        stage: Take only members that this stage of training uses (1, 2 or 3); all when left out.
        fold: Fold that becomes the test split, in place of that of each member with folds.
        external_to: Corpora that a model has learnt from; the new corpus is refused when it shares a collection.
        allow_missing: Go on without corpora that are not there, with a note under the table.
    """

    members: Mapping[str, Any]
    name: str = "composed"
    stage: int | None = None
    fold: int | None = None
    external_to: tuple[Path, ...] = ()
    allow_missing: bool = False

    def __post_init__(self) -> None:
        if self.stage is not None and self.stage not in STAGES:
            raise ConfigError(f"stage={self.stage} is unknown; use one of {', '.join(map(str, STAGES))}.")
        self.chosen()  # refuses what is wrong with a member

    def chosen(self) -> dict[str, Member]:
        """The members of the stage by name, every setting checked; all problems are reported at once."""
        problems: list[str] = []
        found: dict[str, Member] = {}
        for name, values in self.members.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                problems.append(f"members has the name {name!r}; use letters, digits, - and _ alone.")
            if self.fold is not None and isinstance(values, Mapping) and values.get("folds"):
                values = {**values, "fold": self.fold}
            member, wrong = parse_group(Member, values, f"members, '{name}'")
            problems += wrong
            if member is not None and (self.stage is None or self.stage in member.stages):
                found[name] = member
        raise_problems(problems)
        if not found:
            raise ConfigError(f"no member is used by stage {self.stage}." if self.stage else "members is empty.")
        return found
