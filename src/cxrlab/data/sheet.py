"""A contact sheet: many pictures of a corpus on one page, with what is known of each beneath."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cxrlab.core.codec import to_uint8
from cxrlab.core.errors import DataError
from cxrlab.core.files import write_bytes
from cxrlab.core.progress import track
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, Study
from cxrlab.data.config import SheetConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import fit

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, INK, QUIET = (250, 249, 246), (34, 36, 40), (120, 124, 130)
# Distinct for common colour-vision defects (after Okabe and Ito), readable on black and on grey.
OUTLINES = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (213, 94, 0), (204, 121, 167))
_LINES = 10


def contact_sheet(corpus: Corpus, config: SheetConfig, out: str | Path) -> Path:
    """Write a PNG with a random choice of studies, in file order, and return its path.

    Under each picture stand the id, split, view, age and sex, and then what is known: exact
    findings, else a caption, else labels, else the report's first words. With masks, each finding
    and its outline share a colour. A picture that cannot be read is shown as such.
    """
    ids = corpus.ids(config.split)
    if not ids:
        where = f"split '{config.split}' of " if config.split else ""
        raise DataError(f"{where}{corpus.path} holds no study, so there is nothing to show.")
    chosen = np.sort(generator(config.seed, "sheet").permutation(len(ids))[: config.n])
    studies = [corpus[ids[int(index)]] for index in chosen]
    tiles = [_tile(corpus, study, config) for study in track(studies, "laying out the sheet")]
    page = _page(tiles, config.columns, title=f"{corpus.card.name}: {len(tiles)} of {len(ids):,} studies")
    buffer = io.BytesIO()
    page.save(buffer, "PNG", optimize=True)
    return write_bytes(out, buffer.getvalue())


def _page(tiles: Sequence[Image.Image], columns: int, title: str) -> Image.Image:
    columns = min(columns, len(tiles))
    rows = [tiles[at : at + columns] for at in range(0, len(tiles), columns)]
    width = max(tile.width for tile in tiles)
    gap, head = max(8, width // 20), max(26, width // 6)
    heights = [max(tile.height for tile in row) for row in rows]
    size = (gap + columns * (width + gap), head + sum(heights) + len(rows) * gap)
    page = Image.new("RGB", size, PAPER)
    ImageDraw.Draw(page).text((gap, head // 2), title, INK, _font(max(13, width // 13)), anchor="lm")
    top = head
    for row, height in zip(rows, heights, strict=True):
        for column, tile in enumerate(row):
            page.paste(tile, (gap + column * (width + gap), top))
        top += height + gap
    return page


def _tile(corpus: Corpus, study: Study, config: SheetConfig) -> Image.Image:
    """One picture with its lines of text beneath."""
    size, text = config.size, _font(max(10, config.size // 18))
    line_height = round(1.3 * text.size) if isinstance(text, ImageFont.FreeTypeFont) else 13
    colours = _outline_colours(study) if config.masks else {}
    lines: list[tuple[str, tuple[int, int, int], tuple[int, int, int] | None]] = []
    for line in _wrapped(_heading(study), text, size)[:2]:
        lines.append((line, QUIET, None))
    for index, statement in _statements(study):
        for number, line in enumerate(_wrapped(statement, text, size - line_height)):
            lines.append((line, INK, colours.get(index) if number == 0 else None))
    if len(lines) > _LINES + 2:
        lines = [*lines[: _LINES + 1], ("…", QUIET, None)]
    tile = Image.new("RGB", (size, size + line_height // 3 + len(lines) * line_height), PAPER)
    tile.paste(_picture(corpus, study, config, colours), (0, 0))
    draw = ImageDraw.Draw(tile)
    for number, (line, ink, mark) in enumerate(lines):
        top = size + line_height // 3 + number * line_height
        if mark is not None:
            draw.rectangle((0, top + line_height * 0.25, line_height * 0.5, top + line_height * 0.75), fill=mark)
        draw.text((line_height * 0.75 if colours and ink is INK else 0, top), line, ink, text)
    return tile


def _picture(
    corpus: Corpus, study: Study, config: SheetConfig, colours: dict[int, tuple[int, int, int]]
) -> Image.Image:
    try:
        array = to_uint8(corpus.rgb(study, 0, config.size))
    except DataError:
        blank = Image.new("RGB", (config.size, config.size), (225, 222, 215))
        where = (config.size / 2, config.size / 2)
        ImageDraw.Draw(blank).text(where, "cannot be read", (170, 40, 30), _font(config.size // 13), anchor="mm")
        return blank
    for index, colour in colours.items():
        mask = corpus.mask(study, index)
        if mask is not None:
            array[_outline(_fitted(mask, config.size))] = colour
    return Image.fromarray(array)


def _fitted(mask: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    return np.asarray(fit(mask.astype(np.float32), size) >= 0.5)


def _outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels just outside a mask, so that the finding itself stays visible; one pixel for each 200 of size."""
    grown = mask
    for _ in range(max(1, mask.shape[0] // 200)):
        padded = np.pad(grown, 1)
        grown = padded[1:-1, 1:-1] | padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    return grown & ~mask


def _outline_colours(study: Study) -> dict[int, tuple[int, int, int]]:
    drawn = sorted(int(key) for key in study.masks if key.isdigit())
    return {index: OUTLINES[place % len(OUTLINES)] for place, index in enumerate(drawn)}


def _heading(study: Study) -> str:
    view = study.images[0].view.value if study.images else None
    person = f"{study.age:g} {study.sex or ''}".strip() if study.age is not None else study.sex
    return " · ".join(part for part in (study.id, study.split, view, person) if part)


def _statements(study: Study) -> list[tuple[int, str]]:
    """What is known of a study, each with the index of its finding (-1 for anything else)."""
    if study.findings is not None:
        shown = [(index, finding_words(finding)) for index, finding in enumerate(study.findings) if finding.present]
        return shown or [(-1, "no finding")]
    if study.caption is not None:
        return [(-1, study.caption)]
    if study.labels:
        words = {1: "", -1: "possible "}
        positive = [f"{words[value]}{name}" for name, value in study.labels.items() if value in words]
        return [(-1, ", ".join(positive) or "no positive label")]
    text = study.sections and (study.sections.findings or study.sections.impression)
    return [(-1, text or "nothing is known of it")]


def finding_words(finding: Finding) -> str:
    """A finding in a few words: `moderate left pleural effusion, increased`."""
    hedge = "possible" if finding.certainty.value == "possible" else None
    lead = (hedge, finding.severity, finding.side, finding.observation)
    size = f"{finding.size_mm:g} mm" if finding.size_mm is not None else None
    tip = f"tip {finding.tip}" if finding.tip else None
    rest = (finding.location, size, tip, finding.change)
    return ", ".join([" ".join(str(word) for word in lead if word), *(str(word) for word in rest if word)])


def _wrapped(text: str, font: Font, width: int) -> list[str]:
    """Break text at spaces so that each line fits; a word longer than a line is cut into pieces."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if font.getlength(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while font.getlength(word) > width and len(word) > 1:
            fits = next(n for n in range(len(word) - 1, 0, -1) if n == 1 or font.getlength(word[:n]) <= width)
            lines.append(word[:fits])
            word = word[fits:]
        line = word
    return [*lines, line] if line else lines


@lru_cache(maxsize=8)
def _font(size: int) -> Font:
    return ImageFont.load_default(size)
