"""The images and texts of a split as vectors, kept in the run folder block by block so that a stopped run goes on."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.progress import track
from cxrlab.core.records import Finding, Study
from cxrlab.core.runs import Run
from cxrlab.data.corpus import Corpus
from cxrlab.data.views import image_of
from cxrlab.findings.excerpts import present_sentences

if TYPE_CHECKING:
    from cxrlab.core.protocols import Embedder, Image

# Studies a block: large enough that files are few, small enough that little is lost.
BLOCK = 512
IMAGES, TEXTS = "images", "texts"


@dataclass(frozen=True)
class Entry:
    """What is known of one study, its image aside.

    Args:
        id: Of the study.
        patient: Of the study.
        text: The report, or the caption of a picture without a chest.
        labels: CheXpert labels.
        present: Observations that are present; None where the exact findings are not known.
        exact: The exact findings as one text that two studies share when they have the same; None where not known.
    """

    id: str
    patient: str
    text: str
    labels: Mapping[str, int]
    present: frozenset[str] | None = None
    exact: str | None = None

    def label(self, name: str) -> bool | None:
        """Whether a label is there; None when unknown or uncertain."""
        value = self.labels.get(name)
        return None if value is None or value < 0 else bool(value)


def entry_of(study: Study, section: str, present: bool = False) -> Entry | None:
    """The entry of a study; None when it has no text of this section and no caption.

    Args:
        study: The study.
        section: Of its report.
        present: Keep of a report the sentences alone that state something present or possible.
    """
    report = study.sections.section(section) if study.sections else None
    if report and report.strip() and present:
        report = present_sentences(report)
    text = (report or study.caption or "").strip()
    if not text:
        return None
    findings = study.findings
    return Entry(
        id=study.id,
        patient=study.patient,
        text=text,
        labels=study.labels,
        present=None if findings is None else frozenset(one.observation for one in findings if one.present),
        exact=None if findings is None else "; ".join(sorted(_spelled(one) for one in findings if one.present)),
    )


def _spelled(finding: Finding) -> str:
    """Everything that a finding states but where the report says it."""
    return " ".join(f"{key}={value}" for key, value in sorted(finding.to_json().items()) if key != "span")


def embed_all(
    run: Run, encoder: Embedder, corpus: Corpus, entries: Sequence[Entry], batch_size: int
) -> dict[str, NDArray[np.float32]]:
    """Vectors of images and texts, [N, D] each; an image that cannot be read has a row of not-a-number.

    What a stopped run has already embedded is read, not embedded again. An encoder that gives something else than
    numbers for an image or text is a `DataError` that names the study, and nothing of that block is kept.
    """
    blocks: dict[str, list[NDArray[np.float32]]] = {IMAGES: [], TEXTS: []}
    parts = [entries[start : start + BLOCK] for start in range(0, len(entries), BLOCK)]
    for number, block in enumerate(track(parts, "embedding studies", len(entries), size=len)):
        for kind in (TEXTS, IMAGES):
            path = run.path(f"vectors/{kind}_{number:06d}.npy")
            if not path.is_file():
                vectors = (
                    _checked(encoder, encoder.embed_texts([entry.text for entry in block]), block, "text")
                    if kind == TEXTS
                    else _image_vectors(encoder, corpus, block, batch_size)
                )
                run.write(f"vectors/{path.name}", _bytes_of(vectors))
            blocks[kind].append(_stored(path, len(block)))
    return {kind: np.concatenate(found) for kind, found in blocks.items()}


def _image_vectors(encoder: Embedder, corpus: Corpus, block: Sequence[Entry], batch_size: int) -> NDArray[np.float32]:
    rows: dict[int, NDArray[np.float32]] = {}
    for places, images in _batches(corpus, block, batch_size):
        found = _checked(encoder, encoder.embed_images(images), [block[place] for place in places], "image")
        rows |= dict(zip(places, found, strict=True))
    width = len(next(iter(rows.values()))) if rows else encoder.embed_texts([""]).shape[1]
    missing = np.full(width, np.nan, np.float32)
    return np.stack([rows.get(place, missing) for place in range(len(block))])


def _checked(
    encoder: Embedder, vectors: NDArray[np.float32], entries: Sequence[Entry], what: str
) -> NDArray[np.float32]:
    for entry, vector in zip(entries, vectors, strict=True):
        if not np.isfinite(vector).all():
            raise DataError(
                f"'{encoder.name}' gives no numbers for the {what} of study '{entry.id}': its weights are broken, or "
                "the number format is too small for them (try --loading.dtype float32)."
            )
    return vectors


def _batches(corpus: Corpus, block: Sequence[Entry], size: int) -> Iterator[tuple[list[int], list[Image]]]:
    places: list[int] = []
    images: list[Image] = []
    for place, entry in enumerate(block):
        try:
            images.append(image_of(corpus, corpus[entry.id]))
        except DataError:
            continue  # told with their number when all others are done
        places.append(place)
        if len(images) == size:
            yield places, images
            places, images = [], []
    if images:
        yield places, images


def _bytes_of(vectors: NDArray[np.float32]) -> bytes:
    target = io.BytesIO()
    np.save(target, vectors, allow_pickle=False)
    return target.getvalue()


def _stored(path: object, rows: int) -> NDArray[np.float32]:
    """A block that is on disk; one of another number of rows is a `DataError`."""
    try:
        found = np.load(str(path), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read ({error}); delete it and run again.") from None
    if found.ndim != 2 or len(found) != rows:
        raise DataError(f"{path} holds {found.shape} numbers where {rows} rows were expected; delete it and run again.")
    return np.asarray(found, np.float32)
