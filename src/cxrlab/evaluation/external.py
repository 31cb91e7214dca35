"""Is a corpus external to a model? Only where the model can tell what it has learnt from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError
from cxrlab.core.protocols import KnowsItsCollections
from cxrlab.data.collections import check_external, collections_of, refuse_shared
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.models.names import parse_name

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText

LIBRARY_KIND = "retrieval"


def refuse_familiar_library(name: str, corpus: Corpus) -> None:
    """Raise a `DataError` when the model of this name looks among images of a collection of the corpus.

    Asked by name, before the images are indexed, which may take long.
    """
    parsed = parse_name(name)
    if parsed.kind == LIBRARY_KIND:
        check_external(load_corpus(Path(parsed.argument)).card, corpus.card)


def refuse_familiar(model: ImageToText, corpus: Corpus) -> None:
    """Raise a `DataError` when the model has seen a collection of the corpus, a `ConfigError` when it cannot tell."""
    if parse_name(model.name).kind == LIBRARY_KIND:
        return  # see refuse_familiar_library
    # isinstance alone: from Python 3.12 on it looks at the class, where a property stands that may be absent.
    if not (isinstance(model, KnowsItsCollections) and hasattr(model, "collections")):
        raise ConfigError(
            f"'{model.name}' does not tell which collections it has learnt from, so nobody can say whether "
            f"{corpus.path} is external to it; leave out --external."
        )
    refuse_shared(model.collections, collections_of(corpus.card), f"the model '{model.name}'", corpus.card.name)
