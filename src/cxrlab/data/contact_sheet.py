"""A contact sheet: many pictures of a corpus on one page, with what is known of each beneath."""

from __future__ import annotations

import io
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import write_bytes
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, Study
from cxrlab.core.terminal import track
from cxrlab.data.config import SheetConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import fit

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Colour = tuple[int, int, int]

PAPER, INK, QUIET, BLANK, ALARM = (250, 249, 246), (34, 36, 40), (120, 124, 130), (225, 222, 215), (170, 40, 30)
# Distinct for common colour-vision defects (after Okabe and Ito), readable on black and on grey.
OUTLINES = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
MOST_PIXELS = 200_000_000
_HEADING, _LINES = 2, 10


@dataclass(frozen=True)
class Sheet:
    """A sheet that was written; `unreadable` counts studies with an image or mask that cannot be read."""

    path: Path
    shown: int
    unreadable: int

    def __str__(self) -> str:
        lost = f", {self.unreadable} of them with an image or mask that cannot be read" if self.unreadable else ""
        return f"{self.path}: {self.shown} studies{lost}"


@dataclass(frozen=True)
class _Line:
    """A line of text under an image; `mark` is the colour of the finding's outline."""

    text: str
    ink: Colour
    mark: Colour | None = None


def contact_sheet(corpus: Corpus, config: SheetConfig, out: str | Path) -> Sheet:
    """Write a PNG with a random choice of studies, in file order.

    Under each image are the id, split, view, age and sex, and then exact findings, else a caption, else labels, else
    the report's first words. With masks, each finding and its outline share a colour.
    """
    ids = corpus.ids(config.split)
    if not ids:
        where = f"split '{config.split}' of " if config.split else ""
        raise DataError(f"{where}{corpus.path} holds no study, so there is nothing to show.")
    chosen = np.sort(generator(config.seed, "sheet").permutation(len(ids))[: config.n])
    studies = [corpus[ids[int(index)]] for index in chosen]
    title = f"{corpus.card.name}: {len(studies)} of {len(ids):,} studies"
    page, unreadable = _page(corpus, studies, config, title)
    buffer = io.BytesIO()
    page.save(buffer, "PNG")
    return Sheet(write_bytes(out, buffer.getvalue()), len(studies), unreadable)


def _page(corpus: Corpus, studies: list[Study], config: SheetConfig, title: str) -> tuple[Image.Image, int]:
    """The page, and how many studies could not be shown in full."""
    size, font = config.size, _font(max(10, config.size // 18))
    leading = round(1.3 * font.size) if isinstance(font, ImageFont.FreeTypeFont) else 13
    captions = [_caption(study, config, font, leading) for study in studies]
    columns = min(config.columns, len(studies))
    rows = [captions[at : at + columns] for at in range(0, len(studies), columns)]
    heights = [size + leading // 3 + leading * max(len(caption) for caption in row) for row in rows]
    gap, head = max(8, size // 20), max(26, size // 6)
    width, height = gap + columns * (size + gap), head + sum(heights) + len(rows) * gap
    if width * height > MOST_PIXELS:
        raise ConfigError(
            f"a sheet of {len(studies)} pictures of {size} pixels would be {width:,} x {height:,} pixels large, above "
            f"the limit of {MOST_PIXELS:,}; show fewer (n) or smaller ones (size)."
        )
    page = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((gap, head // 2), drawable(title), INK, _font(max(13, size // 13)), anchor="lm")
    tops = [head + sum(heights[:row]) + row * gap for row in range(len(rows))]
    unreadable = 0
    for place, study in enumerate(track(studies, "laying out the sheet")):
        left, top = gap + (place % columns) * (size + gap), tops[place // columns]
        picture, whole = _picture(corpus, study, config)
        unreadable += not whole
        page.paste(picture, (left, top))
        top += size + leading // 3
        # Lines without a mark line up with those that have one.
        indent = round(leading * 0.75) if any(line.mark for line in captions[place]) else 0
        for line in captions[place]:
            if line.mark is not None:
                draw.rectangle((left, top + leading * 0.25, left + leading * 0.5, top + leading * 0.75), fill=line.mark)
            draw.text((left + indent if line.ink is INK else left, top), line.text, line.ink, font)
            top += leading
    return page, unreadable


def _caption(study: Study, config: SheetConfig, font: Font, leading: int) -> list[_Line]:
    """The lines under an image; what does not fit into a dozen is cut with an ellipsis."""
    colours = _outline_colours(study) if config.masks else {}
    view = (study.images[0].view or "view unknown") if study.images else None
    demographics = f"{study.age:g} {study.sex or ''}".strip() if study.age is not None else study.sex
    heading = " · ".join(part for part in (study.id, study.split, view, demographics) if part)
    lines = [_Line(text, QUIET) for text in islice(_wrapped(heading, font, config.size), _HEADING)]
    most = len(lines) + _LINES
    # What is known of the study, each with the index of its finding (-1 for anything else).
    statements = [(-1, "nothing is known of it")]
    if study.findings is not None:
        present = [(index, finding_words(finding)) for index, finding in enumerate(study.findings) if finding.present]
        statements = present or [(-1, "no finding")]
    elif study.caption is not None:
        statements = [(-1, study.caption)]
    elif study.labels:
        words = {1: "", -1: "possible "}
        positive = [f"{words[value]}{name}" for name, value in study.labels.items() if value in words]
        statements = [(-1, ", ".join(positive) or "no positive label")]
    elif text := study.sections and (study.sections.findings or study.sections.impression):
        statements = [(-1, text)]
    for index, statement in statements:
        # One line more than there is room for, to see whether something is cut.
        for number, line in enumerate(islice(_wrapped(statement, font, config.size - leading), most + 1 - len(lines))):
            lines.append(_Line(line, INK, colours.get(index) if number == 0 else None))
    return lines if len(lines) <= most else [*lines[: most - 1], _Line("…", QUIET)]


def _picture(corpus: Corpus, study: Study, config: SheetConfig) -> tuple[Image.Image, bool]:
    """The first image with its outlines, and whether all of it could be read; what could not is noted on it."""
    blank = Image.new("RGB", (config.size, config.size), BLANK)
    if not study.images:
        _draw_note(blank, "no image", config.size // 2, QUIET)
        return blank, True
    try:
        array = to_uint8(corpus.rgb(study, 0, config.size))
    except DataError:
        _draw_note(blank, "cannot be read", config.size // 2)
        return blank, False
    whole = True
    for index, colour in (_outline_colours(study) if config.masks else {}).items():
        try:
            mask = corpus.mask(study, index)
        except DataError:
            whole = False
            continue
        if mask is not None:
            array[_outline(np.asarray(fit(mask.astype(np.float32), config.size) >= 0.5))] = colour
    picture = Image.fromarray(array)
    if not whole:
        picture.paste(BLANK, (0, config.size - config.size // 10, config.size, config.size))
        _draw_note(picture, "mask cannot be read", config.size - config.size // 20)
    return picture, whole


def _draw_note(picture: Image.Image, words: str, middle: int, ink: Colour = ALARM) -> None:
    where = (picture.width / 2, middle)
    ImageDraw.Draw(picture).text(where, words, ink, _font(max(6, picture.width // 13)), anchor="mm")


def _outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels just outside a mask, so that the finding itself stays visible; one pixel for each 200 of size."""
    grown = mask
    for _ in range(max(1, mask.shape[0] // 200)):
        padded = np.pad(grown, 1)
        grown = padded[1:-1, 1:-1] | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    return grown & ~mask


def _outline_colours(study: Study) -> dict[int, Colour]:
    drawn = sorted(int(key) for key in study.masks if key.isdigit())
    return {index: OUTLINES[place % len(OUTLINES)] for place, index in enumerate(drawn)}


def finding_words(finding: Finding) -> str:
    """A finding in a few words: `moderate left pleural effusion, increased`."""
    hedge = "possible" if finding.certainty.value == "possible" else None
    lead = (hedge, finding.severity, finding.side, finding.observation)
    size = f"{finding.size_mm:g} mm" if finding.size_mm is not None else None
    tip = f"tip {finding.tip}" if finding.tip else None
    rest = (finding.location, size, tip, finding.change)
    return ", ".join([" ".join(str(word) for word in lead if word), *(str(word) for word in rest if word)])


def _wrapped(text: str, font: Font, width: int) -> Iterator[str]:
    """Break text at spaces so that each line fits; a word longer than a line is cut into pieces."""

    def fits(words: str) -> bool:
        return len(words) <= width and font.getlength(words) <= width

    line = ""
    for word in drawable(text).split():
        longer = f"{line} {word}" if line else word
        if fits(longer):
            line = longer
            continue
        if line:
            yield line
        while not fits(word) and len(word) > 1:
            # Characters of the longest beginning that fits, by halving; at least one.
            start = word[:width]
            piece = 1 + bisect_left(range(2, len(start) + 1), True, key=lambda length: not fits(start[:length]))
            yield word[:piece]
            word = word[piece:]
        line = word
    if line:
        yield line


def drawable(text: str) -> str:
    """The text in letters that the font has: it knows no accents, so é is drawn as e."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


@lru_cache(maxsize=8)
def _font(size: int) -> Font:
    return ImageFont.load_default(size)
