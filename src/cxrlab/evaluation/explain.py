"""Attention and gradient maps of chosen or all words of one report, drawn over the image.

explain.json               the report, its words, and the files of each
words.png                  every explained word, in the order of the report
explain/WORD.png           each occurrence of a word (down) with each map (across)
explain/WORD.MAP.npy       the values: [occurrences, rows, columns], in pixels of the image for gradients
explain/WORD.sheet.png     every layer and head, for the map `sheet`
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cxrlab.core.egress import EgressData, connection_operational_fields
from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.image_codec import encode_png
from cxrlab.core.plan import Plan, Work
from cxrlab.core.records import Span
from cxrlab.core.runs import Run, finished, progress
from cxrlab.core.terminal import track
from cxrlab.data.contact_sheet import drawable
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import load_image
from cxrlab.data.views import load_selected_image
from cxrlab.evaluation.config import ExplainConfig
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.saliency_maps import SHEET, MapName, PartMaps, check_maps_available, compute_part_maps, parse_map

if TYPE_CHECKING:
    from cxrlab.models.hf.model import HfModel

OPERATIONAL = connection_operational_fields("loading.connection")  # settings that may change when a run is continued


@dataclass(frozen=True, eq=False)
class _Subject:
    """An image [H, W], or a picture [H, W, 3], with its indication and whether it may be a patient's."""

    name: str
    image: NDArray[np.float32]
    indication: str | None
    egress_data: EgressData


def explain(config: ExplainConfig, out: Path) -> Explanation:
    """Explain words of one report in a run folder; a finished run with the same settings is left as it is.

    Raises:
        DataError: When the report has no word, or not the requested one.
        ConfigError: When the model cannot compute a map; see `check_maps_available`.
    """
    if finished(out, config, operational=OPERATIONAL):
        return read_explanation(read_json(out / EXPLAIN))
    ready = _prepare(config)
    names, subject, report, groups, parts = ready.names, ready.subject, ready.report, ready.groups, ready.parts
    maps = ready.maps(parts)
    with Run.open(out, config, operational=OPERATIONAL) as run:
        steps = track(maps, "explaining words", total=len(parts))
        writer = WordWriter(run, subject.image, names, config.alpha)
        grid = None
        for word, spans in groups.items():
            found = list(islice(steps, len(spans)))
            writer.write(word, spans, found)
            grid = found[0].grid
        next(steps, None)  # completes the progress bar
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


def plan_explanation(config: ExplainConfig, out: Path | None = None) -> Plan:
    """Generate the report, and compute the maps of two words.

    Args:
        out: A run folder that may be finished.
    """
    if progress(out, config, operational=OPERATIONAL) == "finished":
        return Plan("explain", ())
    ready, ends = _prepare(config), [time.perf_counter()]
    for _ in ready.maps(ready.parts[:2]):
        ends.append(time.perf_counter())
    each = ends[-1] - ends[-2]
    work = Work(
        "words", "word", len(ready.parts), each, once_s=max(0.0, ends[1] - ends[0] - each), measured=len(ends) - 1
    )
    notes = ("loading the model, the report, and drawing the overlays.",)
    return Plan("explain", (work,), facts={"maps_per_word": len(ready.names)}, left_out=notes)


@dataclass(frozen=True, eq=False)
class _Prepared:
    """An explanation before its run folder is made; `groups` has the occurrences of each word in lower case."""

    config: ExplainConfig
    names: list[MapName]
    subject: _Subject
    model: HfModel
    report: str
    groups: dict[str, list[Span]]

    @property
    def parts(self) -> list[list[Span]]:
        """Every occurrence of every word."""
        return [[span] for spans in self.groups.values() for span in spans]

    def maps(self, parts: Sequence[Sequence[Span]]) -> Iterator[PartMaps]:
        """The maps of some of them."""
        given, config = self.subject, self.config
        return compute_part_maps(
            self.model, given.image, self.report, parts, self.names, given.indication, config.smooth
        )


def _prepare(config: ExplainConfig) -> _Prepared:
    """Open the image and the model, generate the report, and find its words; whatever is wrong is refused here."""
    from cxrlab.models.hf.prompting import written_text

    names = [parse_map(name) for name in config.maps]
    subject = _subject(config)
    eager = any(name.of_attention for name in names)
    loading = replace(config.loading, attention="eager") if eager else config.loading
    model = check_maps_available(open_model(config.model, loading, [subject.egress_data]), names)
    text = config.report
    if text is None:
        text = model.answers([subject.image], [subject.indication], config.decoding)[0][0].text
    report = written_text(model.processor, text)
    if not find_words(report):
        who = "the model generated a report" if config.report is None else "--report is a text"
        raise DataError(f"{who} without a word, so there is nothing to explain; give --report TEXT with words.")
    groups: dict[str, list[Span]] = {}  # word in lower case → its occurrences
    for word in dict.fromkeys(" ".join(word.lower().split()) for word in config.word):
        groups[word] = find_occurrences(report, word)
    for start, end in find_words(report) if not config.word else ():
        groups.setdefault(report[start:end].lower(), []).append((start, end))
    return _Prepared(config, names, subject, model, report, groups)


def _subject(config: ExplainConfig) -> _Subject:
    if config.image is not None:
        egress = EgressData(str(config.image), synthetic=False)  # the origin of a file is unknown
        return _Subject(str(config.image), load_image(config.image), config.indication, egress)
    corpus = load_corpus(str(config.data))
    study = corpus[str(config.study)]
    indication = config.indication or (study.sections.indication if study.sections else None)
    return _Subject(study.id, load_selected_image(corpus, study), indication, corpus.egress_data)


_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
# A phrase ends where neither letters nor a hyphen or apostrophe with letters follow, on both sides.
_BEFORE, _AFTER = r"(?<!\w)(?<!\w['’\-])", r"(?!\w)(?!['’\-]\w)"


def find_words(text: str) -> list[Span]:
    """Span of each word, in order; `right-sided` is one word, punctuation none."""
    return [found.span() for found in _WORD.finditer(text)]


def find_occurrences(text: str, word: str) -> list[Span]:
    """Spans of a word or phrase in a text, in order, whatever its case; never inside another word.

    `right` is not found in `right-sided`. A word without an occurrence raises `DataError` with the nearest word.
    """
    parts = word.split()
    if not parts:
        raise DataError("the word to explain is empty; give one of the report.")
    phrase = re.compile(_BEFORE + r"\s+".join(map(re.escape, parts)) + _AFTER, re.IGNORECASE)
    found = [match.span() for match in phrase.finditer(text)]
    if not found:
        words = sorted({text[start:end].lower() for start, end in find_words(text)})
        raise DataError(
            f"the report ({len(words)} different words) does not contain '{word}'.{did_you_mean(word, words)} "
            "Give a word of the report, or none for every word."
        )
    return found


Array = NDArray[np.float32]
BILINEAR = Image.Resampling.BILINEAR

EXPLAIN, WORDS, FOLDER = "explain.json", "words.png", "explain"
_ACROSS, _SMALL = 6, 200  # panels per row of words.png, and pixels of each
_LONGEST = 40  # characters of a word in its file name


@dataclass(frozen=True)
class ExplainedWord:
    """A word in lower case with the spans of its occurrences, and the files of its overlays and of each map."""

    word: str
    spans: tuple[Span, ...]
    # Of each occurrence: share of the attention on the image; empty without a map of attention.
    image_share: tuple[float, ...]
    # Of each occurrence's tokens, given all before them; empty without a map of gradients.
    log_probability: tuple[float, ...]
    picture: str
    arrays: Mapping[str, str]


@dataclass(frozen=True)
class Explanation:
    """The result of a run of `explain`."""

    model: str
    image: str  # file, or id of the study
    size: tuple[int, int]  # height and width of the image in pixels
    report: str
    written_by: str  # `model`, or `user` for a given report
    grid: tuple[int, int] | None  # rows and columns of attention maps; None without any
    maps: tuple[str, ...]
    words: tuple[ExplainedWord, ...] = ()  # in the order of the report
    overview: str | None = None  # file with every word; None where only sheets were drawn


class WordWriter:
    """Writes the files of one word after the other, and keeps a small panel of each for the overview.

    The hottest spot of a map covers the image by `alpha`.
    """

    def __init__(self, run: Run, image: Array, names: Sequence[MapName], alpha: float) -> None:
        self.run, self.image, self.names, self.alpha = run, image, names, alpha
        self.words: list[ExplainedWord] = []
        self._small: list[tuple[Span, Panel]] = []
        self._taken: set[str] = set()

    def write(self, word: str, spans: Sequence[Span], found: Sequence[PartMaps]) -> None:
        """The files of a word with these spans, and the maps of each."""
        stem = f"{FOLDER}/{self._file_name(word)}"
        arrays = {name.text: f"{stem}.{name.file}.npy" for name in self.names}
        for name, file in arrays.items():
            content = io.BytesIO()
            np.save(content, np.stack([maps.values[name] for maps in found]))
            self.run.write(file, content.getvalue())
        rows = [
            self._row(f"{word} ({k} of {len(spans)})" if len(spans) > 1 else word, m) for k, m in enumerate(found, 1)
        ]
        self.run.write(f"{stem}.png", draw_panels(rows, alpha=self.alpha))
        if SHEET in arrays:
            mean = np.mean([maps.values[SHEET] for maps in found], axis=0, dtype=np.float64)
            self.run.write(f"{stem}.sheet.png", draw_sheet(np.asarray(mean, np.float32), word))
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
        """Write `words.png`, the first map of every occurrence in the order of the report; False with only sheets."""
        panels = [panel for _, panel in sorted(self._small, key=lambda item: item[0])]
        if panels:
            rows = [panels[at : at + _ACROSS] for at in range(0, len(panels), _ACROSS)]
            first = next(name.text for name in self.names if name.text != SHEET)
            self.run.write(
                WORDS, draw_panels(rows, size=_SMALL, alpha=self.alpha, title=f"every word explained: {first}")
            )
        return bool(panels)

    def _row(self, caption: str, maps: PartMaps) -> list[Panel]:
        """The image alone, then each map over it."""
        height, width = self.image.shape[:2]
        flat = [name for name in self.names if name.text != SHEET]
        laid = [Panel(self.image, maps.painted(name, height, width), name.text) for name in flat]
        return [Panel(self.image, None, caption), *laid]

    def _file_name(self, word: str) -> str:
        """Letters and digits of the word, with a number where another word has them too."""
        plain = "-".join("".join(c if c.isalnum() else " " for c in word).split())[:_LONGEST] or "word"
        name, number = plain, 1
        while name in self._taken:
            number += 1
            name = f"{plain}-{number}"
        self._taken.add(name)
        return name


def read_explanation(found: Mapping[str, Any]) -> Explanation:
    """The result of a finished run, from its JSON form."""
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


Picture = NDArray[np.uint8]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, INK, QUIET = (250, 249, 246), (34, 36, 40), (120, 124, 130)
# From cold to hot with steadily rising lightness, which can be read without seeing any hue.
_HEAT = np.array(
    [(18, 14, 62), (58, 34, 124), (112, 48, 146), (172, 66, 128), (222, 104, 86), (246, 160, 62), (255, 232, 142)],
    np.float64,
)
MOST_PIXELS = 100_000_000
_GAP, _BAR, _CAPTION = 10, 12, 22
_SCALE, _NARROWEST = 64, 120  # pixels for a colour bar with its numbers, and of a column at least


@dataclass(frozen=True, eq=False)
class Panel:
    """An image [H, W] or [H, W, 3] in [0, 1], the map [H, W] over it (at least 0), if any, and a caption."""

    image: Array
    heat: Array | None
    caption: str


def apply_colour_map(values: Array) -> Picture:
    """[…] in [0, 1] → uint8 […, 3] of the heat scale; values outside are clipped."""
    at = np.clip(values, 0.0, 1.0).astype(np.float64) * (len(_HEAT) - 1)
    low = np.minimum(np.floor(at).astype(np.intp), len(_HEAT) - 2)
    share = (at - low)[..., None]
    return np.asarray(np.rint(_HEAT[low] * (1 - share) + _HEAT[low + 1] * share), np.uint8)


def overlay_heat_map(image: Array, heat: Array, alpha: float) -> Picture:
    """The image under its map, uint8 [H, W, 3]: the hottest pixel is covered by `alpha`, a cold one not at all."""
    grey = (image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)).astype(np.float64) * 255.0
    top = float(heat.max())  # a map without any heat stays 0
    share = np.asarray(heat / top if top > 0 else np.zeros_like(heat), np.float32)
    cover = (alpha * share)[..., None].astype(np.float64)
    return np.asarray(np.rint(np.clip(grey * (1 - cover) + apply_colour_map(share) * cover, 0, 255)), np.uint8)


def draw_panels(rows: Sequence[Sequence[Panel]], *, size: int = 320, alpha: float = 0.65, title: str = "") -> bytes:
    """PNG of panels in rows, each with its caption and a colour bar from 0 to its own maximum.

    The longer side of an image is `size` pixels; the hottest pixel covers the image by `alpha`.
    """
    sizes = [_on_page(panel, size) for row in rows for panel in row]
    # As wide and high as the largest image, but wide enough for a caption.
    width, height = max(_NARROWEST, *(wide for wide, _ in sizes)), max(high for _, high in sizes)
    columns, step = max(len(row) for row in rows), width + _GAP + _SCALE
    head = 34 if title else _GAP
    page = _page(_GAP + columns * step, head + len(rows) * (height + _CAPTION + _GAP))
    draw = ImageDraw.Draw(page)
    if title:
        draw.text((_GAP, head // 2), _cut(title, page.width - 2 * _GAP, _font(16)), INK, _font(16), anchor="lm")
    for number, row in enumerate(rows):
        top = head + number * (height + _CAPTION + _GAP)
        for place, panel in enumerate(row):
            left = _GAP + place * step
            heat = panel.heat if panel.heat is not None else np.zeros(panel.image.shape[:2], np.float32)
            picture = Image.fromarray(overlay_heat_map(panel.image, heat, alpha))
            extent = _on_page(panel, size)
            page.paste(picture.resize(extent, BILINEAR), (left, top))
            if panel.heat is not None:
                _draw_bar(draw, (left + extent[0] + 6, top), extent[1], float(panel.heat.max()))
            caption = _cut(panel.caption, width + _SCALE, _font(13))
            draw.text((left, top + height + _CAPTION / 2), caption, INK, _font(13), anchor="lm")
    return encode_png(np.asarray(page))


def draw_sheet(values: Array, title: str, *, side: int | None = None) -> bytes:
    """PNG of every layer (down) and head (across) of [layers, heads, rows, columns] on one scale.

    The longer side of a tile is `side` pixels; by default as large as fits a page of about 2,400.
    """
    layers, heads, rows, columns = values.shape
    side = side if side is not None else max(24, min(120, 2400 // max(layers, heads)))
    step_y, step_x = max(1, round(side / max(rows, columns))) * rows, max(1, round(side / max(rows, columns))) * columns
    head, margin = 66, 44
    page = _page(margin + heads * (step_x + 2) + 90, head + layers * (step_y + 2) + _GAP)
    draw = ImageDraw.Draw(page)
    draw.text((_GAP, 16), _cut(title, page.width - 2 * _GAP, _font(16)), INK, _font(16), anchor="lm")
    top = float(values.max())
    for layer in range(layers):
        y = head + layer * (step_y + 2)
        draw.text((margin - 6, y + step_y / 2), f"{layer + 1}", QUIET, _font(12), anchor="rm")
        for place in range(heads):
            tile = values[layer, place] / top if top > 0 else values[layer, place]
            big = apply_colour_map(tile).repeat(step_y // rows, axis=0).repeat(step_x // columns, axis=1)
            page.paste(Image.fromarray(big), (margin + place * (step_x + 2), y))
    for place in range(heads):
        draw.text((margin + place * (step_x + 2) + step_x / 2, head - 8), f"{place + 1}", QUIET, _font(12), anchor="mm")
    draw.text((_GAP, head - 28), "layer (down) and head (across), one scale for all", QUIET, _font(11), anchor="lm")
    _draw_bar(draw, (margin + heads * (step_x + 2) + _GAP, head), min(200, layers * (step_y + 2)), top)
    return encode_png(np.asarray(page))


def _on_page(panel: Panel, size: int) -> tuple[int, int]:
    """Width and height of an image whose longer side is `size`."""
    height, width = panel.image.shape[:2]
    scale = size / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _draw_bar(draw: ImageDraw.ImageDraw, where: tuple[int, int], height: int, most: float) -> None:
    """The colour scale from 0 (below) to `most` (above)."""
    left, top = where
    for line in range(height):
        share = np.float32(1 - line / max(1, height - 1))
        draw.line(
            (left, top + line, left + _BAR, top + line), fill=tuple(int(c) for c in apply_colour_map(np.asarray(share)))
        )
    draw.text((left + _BAR + 4, top), f"{most:.2g}", QUIET, _font(11), anchor="la")
    draw.text((left + _BAR + 4, top + height), "0", QUIET, _font(11), anchor="ld")


def _page(width: int, height: int) -> Image.Image:
    if width * height > MOST_PIXELS:
        raise ConfigError(
            f"the picture would be {width:,} x {height:,} pixels large, above the limit of {MOST_PIXELS:,}; "
            "explain fewer words at once."
        )
    return Image.new("RGB", (width, height), PAPER)


def _cut(text: str, width: int, font: Font) -> str:
    """The text, ended by an ellipsis where it is too long for one line."""
    words = " ".join(drawable(text).split())
    if font.getlength(words) <= width:
        return words
    while words and font.getlength(words + "…") > width:
        words = words[:-1]
    return words + "…"


@lru_cache(maxsize=8)
def _font(size: int) -> Font:
    return ImageFont.load_default(size)
