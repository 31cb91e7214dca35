"""Members of compositions for tests: corpora of given studies, written through the same writer as real ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from corpora import image

from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.config import ComposeConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter


def study(number: int, views: Iterable[str] = ("PA",), **changes: Any) -> Study:
    """Study s<k> of patient p<k> in train, an image for each view and a findings text."""
    images = tuple(ImageFile(f"images/s{number}_{k}.png", View(view)) for k, view in enumerate(views))
    given: dict[str, Any] = {"sections": Report(findings=f"Text of number {number}."), "split": "train"}
    return Study(**{"id": f"s{number}", "patient": f"p{number}", "images": images, **given, **changes})


def corpus(path: Path, studies: Iterable[Study], collection: str | None = None, name: str = "toy") -> Corpus:
    """A complete corpus folder of these studies with a small image behind every path."""
    collections = (collection,) if collection else ()
    card = Card(name, source="A test.", licence="None.", citation="Nobody.", collections=collections)
    with CorpusWriter(path, card) as writer:
        for number, one in enumerate(studies):
            writer.add(one, {one_image.path: encode_png(image(number)) for one_image in one.images})
    return writer.finish()


def config(members: dict[str, Any], **changes: Any) -> ComposeConfig:
    """A composition of members, given as name → path or name → settings."""
    whole = {name: {"corpus": str(m)} if isinstance(m, Path) else m for name, m in members.items()}
    return ComposeConfig(whole, **changes)
