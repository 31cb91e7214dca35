"""Where pictures of a stream come from: the ledger of an extraction, or the images of a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_bytes, sha256_of
from cxrlab.core.image_codec import decode, to_uint8
from cxrlab.core.randomness import generator
from cxrlab.data.card import CARD
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.views import selected_image
from cxrlab.extraction.desk import PICTURES
from cxrlab.extraction.ledger import LEDGER, read_ledger

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels


@dataclass(frozen=True)
class Shot:
    """A picture that somebody asked about, not yet opened.

    Args:
        key: Name of the picture.
        account: Who asked.
        source: With the key it stands for the pixels: two corpora may give the same name to different images.
        load: Opens it: uint8 [H, W].
    """

    key: str
    account: str
    source: str
    load: Callable[[], Pixels]


def stream_shots(folder: Path, *, split: str, n: int | None, seed: int) -> list[Shot]:
    """The pictures of a stream in the order in which they were asked.

    Args:
        folder: Run folder of an extraction; or a corpus, whose images are asked in an order that the seed decides.
        split: Of a corpus.
        n: Images of a corpus, at most.
        seed: Decides images and order of a corpus.
    """
    if (folder / LEDGER).is_file():
        return ledger_shots(folder)
    if (folder / CARD).is_file():
        return corpus_shots(load_corpus(folder), (split,), n, seed, account=folder.name)
    raise DataError(f"{folder} holds neither the {LEDGER} of an extraction nor the {CARD} of a corpus; check the path.")


def ledger_shots(run: Path) -> list[Shot]:
    """What an extraction has asked its victim; questions answered from its own cache never reached the victim."""
    asked = [query for query in read_ledger(run / LEDGER) if not query.cached]
    if not asked:
        raise DataError(f"{run / LEDGER} holds no answered question; there is nothing to watch yet.")
    folder = run / PICTURES
    return [Shot(one.sha256, one.account, "sha256", _Stored(folder / f"{one.sha256}.png")) for one in asked]


def corpus_shots(
    corpus: Corpus, splits: Iterable[str], n: int | None, seed: int, account: str = "benign"
) -> list[Shot]:
    """The images of some splits, at most n, drawn in an order that the seed decides; none at all is a `DataError`."""
    ids = [name for split in splits for name in corpus.ids(split)]
    if not ids:
        raise corpus.no_study_error(*splits)
    drawn = generator(seed, "detect", "films", *splits).permutation(len(ids))[:n]
    source = sha256_of(corpus.file)
    return [Shot(ids[place], account, source, _Image(corpus, ids[place])) for place in drawn]


@dataclass(frozen=True)
class _Stored:
    """A picture of a run folder."""

    path: Path

    def __call__(self) -> Pixels:
        found = decode(read_bytes(self.path), str(self.path))
        if found.dtype != np.uint8 or found.ndim != 2:
            raise DataError(f"{self.path} is no 8-bit grey picture; it is not what an extraction asked about.")
        return np.asarray(found, np.uint8)


@dataclass(frozen=True)
class _Image:
    """An image of a corpus, in the 8 bits in which a client would send it; colour becomes grey."""

    corpus: Corpus
    study: str

    def __call__(self) -> Pixels:
        study = self.corpus[self.study]
        return to_uint8(self.corpus.image(study, selected_image(study).number))
