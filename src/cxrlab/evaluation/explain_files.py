"""The files of an explanation: pictures and numbers of each word, and the record that lists them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.records import Span
from cxrlab.core.runs import Run
from cxrlab.evaluation.map_names import SHEET, MapName
from cxrlab.evaluation.overlay import Panel, panels_png, sheet_png
from cxrlab.evaluation.word_maps import PartMaps

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
