"""Where a model looked when it wrote a word: maps of chosen or all words of one report, over the image.

explain.json               the report, its words, and which files show them
words.png                  every word that was explained, in the order of the report
explain/WORD.png           each occurrence of a word (down) with each map (across)
explain/WORD.MAP.npy       the numbers: [occurrences, rows, columns], in pixels of the image for gradients
explain/WORD.sheet.png     every layer and head, where the map `sheet` was asked for
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.connection import free_of
from cxrlab.core.egress import Shown
from cxrlab.core.errors import DataError, nearest
from cxrlab.core.files import read_json
from cxrlab.core.progress import track
from cxrlab.core.records import Span
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import load_image
from cxrlab.data.views import image_of
from cxrlab.evaluation.config import ExplainConfig
from cxrlab.evaluation.open_models import open_model
from cxrlab.evaluation.overlay import Panel, panels_png, sheet_png
from cxrlab.evaluation.word_maps import SHEET, MapName, PartMaps, explainable, parse_map, part_maps

if TYPE_CHECKING:
    from cxrlab.models.hf.model import HfModel

FREE = free_of("loading.connection")  # settings that may change when a run is continued


@dataclass(frozen=True, eq=False)
class _Subject:
    """An image [H, W], or a picture [H, W, 3], with what is known of it, and whose it may be."""

    name: str
    image: NDArray[np.float32]
    indication: str | None
    shown: Shown


def explain(config: ExplainConfig, out: Path) -> Explanation:
    """Explain words of one report in a run folder; a finished run with the same settings is left as it is.

    Args:
        config: Settings.
        out: Run folder.

    Raises:
        DataError: When the report has no word, or not the one that was asked for.
        ConfigError: When the model cannot give a map; see `explainable`.
    """
    if finished(out, config, free=FREE):
        return stored(read_json(out / EXPLAIN))
    names = [parse_map(name) for name in config.maps]
    subject = _subject(config)
    eager = any(name.of_attention for name in names)
    loading = replace(config.loading, attention="eager") if eager else config.loading
    model = explainable(open_model(config.model, loading, [subject.shown]), names)
    report = _report(model, subject, config)
    if not every_word(report):
        who = "the model wrote a report" if config.report is None else "--report is a text"
        raise DataError(f"{who} without a word, so there is nothing to explain; give --report TEXT with words.")
    groups = _chosen(report, config.word)
    parts = [[span] for spans in groups.values() for span in spans]
    maps = part_maps(model, subject.image, report, parts, names, subject.indication, config.smooth)
    with Run.open(out, config, free=FREE) as run:
        steps = track(maps, "explaining words", total=len(parts))
        writer = WordWriter(run, subject.image, names, config.alpha)
        grid = None
        for word, spans in groups.items():
            found = list(islice(steps, len(spans)))
            writer.write(word, spans, found)
            grid = found[0].grid
        next(steps, None)  # asked for one more, the bar knows that it has come to its end
        done = Explanation(
            model=config.model,
            image=subject.name,
            size=(subject.image.shape[0], subject.image.shape[1]),
            report=report,
            written_by="model" if config.report is None else "user",
            grid=None if grid is None else (grid.rows, grid.columns),
            maps=config.maps,
            words=tuple(sorted(writer.words, key=lambda word: word.spans)),
            overview=WORDS if writer.overview() else None,
        )
        run.write(EXPLAIN, done)
    return done


def _subject(config: ExplainConfig) -> _Subject:
    if config.image is not None:
        shown = Shown(str(config.image), synthetic=False)  # a file says nothing of where it comes from
        return _Subject(str(config.image), load_image(config.image), config.indication, shown)
    corpus = load_corpus(str(config.data))
    study = corpus[str(config.study)]
    told = study.sections.indication if study.sections else None
    return _Subject(study.id, image_of(corpus, study), config.indication or told, corpus.shown)


def _report(model: HfModel, subject: _Subject, config: ExplainConfig) -> str:
    """The report as its tokens write it."""
    from cxrlab.models.hf.prompting import written_text

    if config.report is not None:
        return written_text(model.processor, config.report)
    answer = model.answers([subject.image], [subject.indication], config.decoding)[0][0]
    return written_text(model.processor, answer.text)


def _chosen(report: str, words: Sequence[str]) -> dict[str, list[Span]]:
    """Word in lower case → where it stands; the words asked for, or every word in order of first mention."""
    if words:
        asked = dict.fromkeys(" ".join(word.lower().split()) for word in words)
        return {word: occurrences(report, word) for word in asked}
    groups: dict[str, list[Span]] = {}
    for start, end in every_word(report):
        groups.setdefault(report[start:end].lower(), []).append((start, end))
    return groups


_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
# Neither letters nor a hyphen or apostrophe with letters behind it may go on beyond either end of a phrase.
_BEFORE, _AFTER = r"(?<!\w)(?<!\w['’\-])", r"(?!\w)(?!['’\-]\w)"


def every_word(text: str) -> list[Span]:
    """Characters [start, end) of each word, in order; `right-sided` is one word, punctuation none."""
    return [found.span() for found in _WORD.finditer(text)]


def occurrences(text: str, word: str) -> list[Span]:
    """Where a word or phrase stands in a text, in order, whatever its case; never inside another word.

    `right` is not found in `right-sided`. A word that is not there is a `DataError` with the nearest that is.
    """
    parts = word.split()
    if not parts:
        raise DataError("the word to explain is empty; give one that the report holds.")
    phrase = re.compile(_BEFORE + r"\s+".join(map(re.escape, parts)) + _AFTER, re.IGNORECASE)
    found = [match.span() for match in phrase.finditer(text)]
    if not found:
        words = sorted({text[start:end].lower() for start, end in every_word(text)})
        raise DataError(
            f"the report ({len(words)} different words) does not hold '{word}'.{nearest(word, words)} "
            "Give a word that it holds, or none for every word."
        )
    return found


Array = NDArray[np.float32]
BILINEAR = Image.Resampling.BILINEAR

EXPLAIN, WORDS, FOLDER = "explain.json", "words.png", "explain"
_ACROSS, _SMALL = 6, 200  # panels a row of words.png, and pixels of each
_LONGEST = 40  # characters of a word that its file name keeps


@dataclass(frozen=True)
class ExplainedWord:
    """A word, wherever it stands in the report.

    Args:
        word: In lower case.
        spans: Characters [start, end) of each occurrence.
        image_share: Of each occurrence: how much of the attention went to the image and not to words, 0 to 1; empty
            without a map of attention.
        log_probability: Of each occurrence's tokens, given all before them; empty without a map of gradients.
        picture: File with its overlays.
        arrays: Map → file with its numbers.
    """

    word: str
    spans: tuple[Span, ...]
    image_share: tuple[float, ...]
    log_probability: tuple[float, ...]
    picture: str
    arrays: Mapping[str, str]


@dataclass(frozen=True)
class Explanation:
    """What a run of `explain` came to.

    Args:
        model: Name of the model.
        image: File, or id of the study.
        size: Height and width of the image in pixels.
        report: The words that were explained.
        written_by: `model`, or `user` for words that were put into its mouth.
        grid: Rows and columns of attention maps; None when there are none.
        maps: Their names.
        words: In the order of the report.
        overview: File with every word; None where only sheets were drawn.
    """

    model: str
    image: str
    size: tuple[int, int]
    report: str
    written_by: str
    grid: tuple[int, int] | None
    maps: tuple[str, ...]
    words: tuple[ExplainedWord, ...] = ()
    overview: str | None = None


class WordWriter:
    """Writes the files of one word after the other, and remembers a small panel of each for the overview.

    Args:
        run: The open run.
        image: [H, W] or [H, W, 3] in [0, 1].
        names: Maps, in the order of the pictures.
        alpha: How much the hottest spot covers the image.
    """

    def __init__(self, run: Run, image: Array, names: Sequence[MapName], alpha: float) -> None:
        self.run, self.image, self.names, self.alpha = run, image, names, alpha
        self.words: list[ExplainedWord] = []
        self._small: list[tuple[Span, Panel]] = []
        self._taken: set[str] = set()

    def write(self, word: str, spans: Sequence[Span], found: Sequence[PartMaps]) -> None:
        """The files of a word that stands at these spans, with the maps of each."""
        stem = f"{FOLDER}/{self._file_name(word)}"
        arrays = {name.text: f"{stem}.{name.file}.npy" for name in self.names}
        for name, file in arrays.items():
            self.run.write(file, _npy(np.stack([maps.values[name] for maps in found])))
        rows = [
            self._row(f"{word} ({k} of {len(spans)})" if len(spans) > 1 else word, m) for k, m in enumerate(found, 1)
        ]
        self.run.write(f"{stem}.png", panels_png(rows, alpha=self.alpha))
        if SHEET in arrays:
            mean = np.mean([maps.values[SHEET] for maps in found], axis=0, dtype=np.float64)
            self.run.write(f"{stem}.sheet.png", sheet_png(np.asarray(mean, np.float32), word))
        for span, row in zip(spans, rows, strict=True):
            if row[-1].heat is not None:
                self._small.append((span, Panel(_shrunk(row[1].image), _shrunk(row[1].heat), word)))
        self.words.append(
            ExplainedWord(
                word=word,
                spans=tuple(spans),
                image_share=tuple(maps.image_share for maps in found if maps.image_share is not None),
                log_probability=tuple(maps.log_probability for maps in found if maps.log_probability is not None),
                picture=f"{stem}.png",
                arrays=arrays,
            )
        )

    def overview(self) -> bool:
        """Writes `words.png`, the first map of every occurrence in the order of the report; False for sheets alone."""
        panels = [panel for _, panel in sorted(self._small, key=lambda item: item[0])]
        if panels:
            rows = [panels[at : at + _ACROSS] for at in range(0, len(panels), _ACROSS)]
            first = next(name.text for name in self.names if name.text != SHEET)
            self.run.write(
                WORDS, panels_png(rows, size=_SMALL, alpha=self.alpha, title=f"every word explained: {first}")
            )
        return bool(panels)

    def _row(self, caption: str, maps: PartMaps) -> list[Panel]:
        """The image alone, then each map over it."""
        height, width = self.image.shape[:2]
        flat = [name for name in self.names if name.text != SHEET]
        laid = [Panel(self.image, maps.painted(name, height, width), name.text) for name in flat]
        return [Panel(self.image, None, caption), *laid]

    def _file_name(self, word: str) -> str:
        """Letters and digits of the word, not taken by another."""
        plain = "-".join("".join(c if c.isalnum() else " " for c in word).split())[:_LONGEST] or "word"
        name, number = plain, 1
        while name in self._taken:
            number += 1
            name = f"{plain}-{number}"
        self._taken.add(name)
        return name


def stored(found: Mapping[str, Any]) -> Explanation:
    """What an earlier run came to, from its JSON form."""
    words = tuple(
        ExplainedWord(
            **{
                **word,
                "spans": tuple((start, end) for start, end in word["spans"]),
                "image_share": tuple(word["image_share"]),
                "log_probability": tuple(word["log_probability"]),
            }
        )
        for word in found["words"]
    )
    height, width = found["size"]
    grid = found["grid"] and (found["grid"][0], found["grid"][1])
    return Explanation(**{**found, "size": (height, width), "grid": grid, "maps": tuple(found["maps"]), "words": words})


def _npy(values: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def _shrunk(picture: Array | None) -> Array:
    """At most a panel of the overview, so that a report of a hundred words over a large image fits in memory."""
    if picture is None:
        raise ValueError("a panel without a map has nothing to shrink")
    scale = _SMALL / max(picture.shape[:2])
    if scale >= 1:
        return picture
    height, width = (max(1, round(side * scale)) for side in picture.shape[:2])
    layers = np.moveaxis(picture, -1, 0) if picture.ndim == 3 else picture[None]  # Pillow has no colour in float32
    small = [
        np.asarray(Image.fromarray(np.ascontiguousarray(layer, np.float32)).resize((width, height), BILINEAR))
        for layer in layers
    ]
    return np.stack(small, axis=-1) if picture.ndim == 3 else small[0]
