"""Statistics of a corpus, as `statistics.json` holds them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import to_uint8, to_unit
from cxrlab.core.records import SECTIONS, SPLITS, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.duplicates import study_text, words
from cxrlab.data.images import Picture, as_uint8, luminance
from cxrlab.data.views import selected_image

Counts = Mapping[str, int]
# Value → split → count; "all" holds the sum of the splits.
BySplit = Mapping[str, Counts]


@dataclass(frozen=True)
class Quartiles:
    """Five numbers of many: a quartile is the least value that at least that share of all does not exceed."""

    n: int
    least: float
    first: float
    median: float
    third: float
    most: float
    mean: float


@dataclass(frozen=True)
class Repeats:
    """Counts of what is in a corpus more than once."""

    groups: int
    members: int
    across_splits: int  # groups with members in more than one split


@dataclass(frozen=True)
class Images:
    """The images of a corpus, as far as they can be read; grey values are of [0, 1]."""

    read: int
    width: Quartiles | None
    height: Quartiles | None
    depth: Counts
    colour: int
    mean_grey: Quartiles | None
    spread_of_grey: Quartiles | None
    suspects: Counts


@dataclass(frozen=True)
class Statistics:
    """What `statistics.json` holds."""

    splits: Counts
    views: BySplit  # view → split → images; "unknown" counts those without a stated view
    usable: BySplit  # what training takes by default, or why it leaves a study out → split → studies
    sexes: BySplit  # sex → split → studies
    ages: BySplit
    # CheXpert observation → split → value in words → studies; a study without the label counts as unknown.
    labels: Mapping[str, BySplit]
    own_labels: Mapping[str, BySplit]  # the same for the corpus's own labels
    texts: Mapping[str, Quartiles]  # kind of text → number of words in those studies that have one
    masked: Counts  # mask of a removed word → studies with a text that holds it
    with_text: int
    with_prior: int
    with_boxes: int
    images: Images
    absent_images: int  # images that the source lists and does not hold; no defect of the corpus
    repeats: Mapping[str, Repeats]  # exact repeats of source texts and images, near ones too where they were looked for
    dropped: Counts = field(default_factory=dict)
    remarks: Counts = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def quartiles(values: Mapping[int, int], unit: int = 1) -> Quartiles:
    """Five numbers and the mean of at least one value; a value of 250 with a unit of 1000 stands for 0.25."""
    ordered = sorted(values.items())
    n = sum(values.values())

    def at(share: float) -> float:
        reached = 0
        for value, count in ordered:
            reached += count
            if reached >= share * n:
                return value / unit if unit > 1 else value
        raise ValueError("no values")

    mean = sum(value * count for value, count in ordered) / n / unit
    return Quartiles(n, at(0.0), at(0.25), at(0.5), at(0.75), at(1.0), round(mean, 4))


ALL, NONE, UNKNOWN = "all", "none", "unknown"
USABLE, NO_TEXT = "split, frontal image and findings text", "no findings text"
NO_FRONTAL, NO_SPLIT = "no frontal image", "no split"
AGE_BANDS = ((0, "<18"), (18, "18-39"), (40, "40-59"), (60, "60-79"), (80, "80+"))
LABEL_WORDS = {1: "present", 0: "absent", -1: "uncertain"}
MASKS = {"___": re.compile(r"_{3}"), "XXXX": re.compile(r"X{4}")}
_SUSPECTS = ("nearly black", "nearly white", "little contrast", "maybe inverted")
_STEPS = 1000  # grey means are counted in thousandths


class Tally:
    """Counts studies one by one; `statistics` returns the sums."""

    def __init__(self) -> None:
        self._splits: Counter[str] = Counter()
        self._counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._labels: dict[str, Counter[tuple[str, str, int]]] = defaultdict(Counter)
        self._words: dict[str, Counter[int]] = defaultdict(Counter)
        self._masked: Counter[str] = Counter()
        self._plain: Counter[str] = Counter()
        self._depth: Counter[str] = Counter()
        self._suspects: Counter[str] = Counter(dict.fromkeys(_SUSPECTS, 0))
        self._numbers: dict[str, Counter[int]] = defaultdict(Counter)  # of images
        self.reports = RepeatCounter()
        self.pictures = RepeatCounter()

    def take(self, study: Study, images: Sequence[ImageFacts]) -> None:
        split = study.split or NONE
        self._splits[split] += 1
        for image in study.images:
            self._counts["view"][image.view or UNKNOWN, split] += 1
        self._counts["sex"][study.sex or UNKNOWN, split] += 1
        self._counts["age"][age_band(study.age), split] += 1
        for kind, labels in (("labels", study.labels), ("own_labels", study.own_labels)):
            for name, value in labels.items():
                self._labels[kind][name, split, value] += 1
        for kind, text in texts_of(study):
            self._words[kind][len(text.split())] += 1
        if source := study_text(study):
            self._plain["with_text"] += 1
            self.reports.take(text_digest(source), split)
            self._masked.update(mask for mask, pattern in MASKS.items() if pattern.search(source))
        self._counts["usable"][usable(study), split] += 1
        self._plain["absent_images"] += len(study.absent_images or ())
        self._plain["with_prior"] += study.prior is not None
        self._plain["with_boxes"] += bool(study.boxes)
        for facts in images:
            self.pictures.take(facts.digest, split)
            self._plain["images_read"] += 1
            self._plain["colour"] += facts.colour
            self._depth[facts.depth] += 1
            self._numbers["width"][facts.width] += 1
            self._numbers["height"][facts.height] += 1
            self._numbers["mean"][round(_STEPS * facts.mean)] += 1
            self._numbers["spread"][round(_STEPS * facts.spread)] += 1
            signs = (facts.high < 0.1, facts.low > 0.9, facts.high - facts.low < 0.1, facts.inverted)
            self._suspects.update(name for name, sign in zip(_SUSPECTS, signs, strict=True) if sign)

    def statistics(self, dropped: Counts, remarks: Counts, near: Mapping[str, Repeats]) -> Statistics:
        exact = {"same report": self.reports.repeats(), "same image": self.pictures.repeats()}
        read = self._plain["images_read"]
        sections = {name: place for place, name in enumerate(SECTIONS)}  # first, then other texts by name
        kinds = sorted(self._words, key=lambda kind: (sections.get(kind, len(sections)), kind))
        images = Images(
            read=read,
            width=quartiles(self._numbers["width"]) if read else None,
            height=quartiles(self._numbers["height"]) if read else None,
            depth=dict(self._depth),
            colour=self._plain["colour"],
            mean_grey=quartiles(self._numbers["mean"], _STEPS) if read else None,
            spread_of_grey=quartiles(self._numbers["spread"], _STEPS) if read else None,
            suspects=dict(self._suspects),
        )
        return Statistics(
            splits=_in_order(self._splits, (*SPLITS, NONE)),
            views=self._by_split("view", ("PA", "AP", "frontal", "lateral", "other", UNKNOWN)),
            usable=self._by_split("usable", (USABLE, NO_TEXT, NO_FRONTAL, NO_SPLIT)),
            sexes=self._by_split("sex", ("F", "M", UNKNOWN)),
            ages=self._by_split("age", (*(name for _, name in AGE_BANDS), UNKNOWN)),
            labels=self._label_counts("labels"),
            own_labels=self._label_counts("own_labels"),
            texts={kind: quartiles(self._words[kind]) for kind in kinds},
            masked=dict(self._masked),
            with_text=self._plain["with_text"],
            with_prior=self._plain["with_prior"],
            with_boxes=self._plain["with_boxes"],
            images=images,
            absent_images=self._plain["absent_images"],
            repeats={**exact, **near},
            dropped=dict(dropped),
            remarks=dict(remarks),
        )

    def _by_split(self, kind: str, order: Sequence[str]) -> dict[str, dict[str, int]]:
        table: dict[str, Counter[str]] = defaultdict(Counter)
        for (value, split), count in self._counts[kind].items():
            table[value][split] += count
            table[value][ALL] += count
        return {value: _in_order(table[value], (ALL, *SPLITS, NONE)) for value in order if value in table}

    def _label_counts(self, kind: str) -> dict[str, dict[str, dict[str, int]]]:
        tally = self._labels[kind]
        splits = [split for split in (*SPLITS, NONE) if self._splits[split]]
        table: dict[str, dict[str, dict[str, int]]] = {}
        for name in sorted({name for name, _, _ in tally}):
            rows = {split: {word: tally[name, split, value] for value, word in LABEL_WORDS.items()} for split in splits}
            for split, row in rows.items():
                row[UNKNOWN] = self._splits[split] - sum(row.values())
            words = (*LABEL_WORDS.values(), UNKNOWN)
            table[name] = {ALL: {word: sum(row[word] for row in rows.values()) for word in words}, **rows}
        return table


def usable(study: Study) -> str:
    """Whether training takes a study as it is set by default, or why it leaves the study out."""
    text = study.caption or (study.sections.findings if study.sections is not None else None)
    if not (text and text.strip()):
        return NO_TEXT
    try:
        selected_image(study)
    except DataError:
        return NO_FRONTAL
    return USABLE if study.split is not None else NO_SPLIT


class RepeatCounter:
    """Counts repeated things by their digests of sixteen bytes."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[str, int, bool]] = {}
        # What comes once shares one tuple for each split, so that half a million marks stay small.
        self._once: dict[str, tuple[str, int, bool]] = {}

    def take(self, mark: bytes, split: str) -> None:
        before = self._seen.get(mark)
        if before is None:
            self._seen[mark] = self._once.setdefault(split, (split, 1, False))
        else:
            first, members, across = before
            self._seen[mark] = (first, members + 1, across or split != first)

    def repeats(self) -> Repeats:
        again = [(members, across) for _, members, across in self._seen.values() if members > 1]
        return Repeats(len(again), sum(members for members, _ in again), sum(across for _, across in again))


def age_band(age: float | None) -> str:
    """The band of an age in years: <18, 18-39, 40-59, 60-79 or 80+; unknown without one."""
    return UNKNOWN if age is None else [name for start, name in AGE_BANDS if age >= start][-1]


def texts_of(study: Study) -> Iterator[tuple[str, str]]:
    """Every text of a study that holds a word, with its kind: a section, `report`, or `structured:WHO`."""
    for name in SECTIONS:
        text = study.sections.section(name) if study.sections is not None else None
        if text and text.strip():
            yield name, text
    if study.report and study.report.strip():
        yield "report", study.report
    for who, parts in study.structured.items():
        if any(part.strip() for part in parts.values()):
            yield f"structured:{who}", " ".join(parts.values())


def text_digest(text: str) -> bytes:
    """The mark of a text by its words alone: two that differ in case, points or spaces are the same."""
    return hashlib.blake2b(" ".join(words(text)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _in_order(tally: Mapping[str, int], order: Sequence[str]) -> dict[str, int]:
    return {name: tally[name] for name in order if name in tally}


FRONTAL = frozenset({View.PA, View.AP, View.FRONTAL})
_DEPTHS = {"uint8": "8 bits", "uint16": "16 bits", "bool": "1 bit", "float32": "DICOM"}
_GREYS = np.arange(256)
_THUMB = 32


@dataclass(frozen=True)
class ImageFacts:
    """Numbers of one image; grey values are of [0, 1]."""

    width: int
    height: int
    depth: str  # how grey values are stored: "8 bits", "16 bits", "1 bit", or "DICOM"
    colour: bool  # whether its channels differ
    mean: float
    spread: float
    low: float  # grey that 1 % of the pixels stay below
    high: float  # grey that 1 % of the pixels exceed
    inverted: bool  # whether bone seems to be dark; frontal images only
    digest: bytes  # mark of what it shows: the same image saved in another way has the same one
    perceptual_hash: int | None = None  # None if not requested


def image_facts(picture: Picture, view: View | None) -> ImageFacts:
    """Measure a picture as `images.read_picture` returns it."""
    shown = as_uint8(picture)
    grey = shown if shown.ndim == 2 else to_uint8(luminance(to_unit(shown)))
    shares = np.bincount(grey.ravel(), minlength=256) / grey.size
    mean = float(shares @ _GREYS)
    variance = float(shares @ (_GREYS - mean) ** 2)
    below = np.cumsum(shares)
    return ImageFacts(
        width=grey.shape[1],
        height=grey.shape[0],
        depth=_DEPTHS[str(picture.dtype)],
        colour=shown.ndim == 3,
        mean=mean / 255,
        spread=math.sqrt(max(0.0, variance)) / 255,
        low=int(np.searchsorted(below, 0.01)) / 255,
        high=int(np.searchsorted(below, 0.99)) / 255,
        inverted=view in FRONTAL and looks_inverted(grey),
        digest=digest(shown),
    )


def digest(shown: NDArray[np.uint8]) -> bytes:
    """A digest of the pixels of a picture in the form of `images.as_uint8`."""
    # The shape counts: a blank image of 2 x 8 and one of 4 x 4 hold the same bytes.
    mark = hashlib.blake2b(repr(shown.shape).encode(), digest_size=16)
    mark.update(np.ascontiguousarray(shown).data)
    return mark.digest()


def looks_inverted(grey: NDArray[np.uint8]) -> bool:
    """Whether a frontal radiograph, uint8 [H, W], seems to show bone dark and air bright.

    Two signs must agree: the midline is darker than the lungs, and the upper corners, where no body is, are bright.
    """
    if min(grey.shape) < _THUMB:
        return False
    # Means over a 32 x 32 grid; up to 31 rows and columns at the far edges are left out.
    height, width = (side // _THUMB * _THUMB for side in grey.shape)
    cells = grey[:height, :width].reshape(_THUMB, height // _THUMB, _THUMB, width // _THUMB)
    small = np.asarray(cells.mean(axis=(1, 3))) / 255
    rows = slice(8, 20)
    lungs = (small[rows, 5:11].mean() + small[rows, 21:27].mean()) / 2
    corners = np.median(np.concatenate([small[:4, :4], small[:4, -4:]]))
    return bool(small[rows, 14:18].mean() < lungs and corners > 0.5)
