"""Where images come from, and whether a corpus is foreign to what a model has learnt from.

Open-I and IU X-ray are two forms of one collection, as are the versions of CheXpert: a model that has
seen one of them meets known patients in the other. Names of corpora do not tell; their cards do.
"""

from __future__ import annotations

from collections.abc import Collection

from cxrlab.core.errors import DataError
from cxrlab.data.card import Card
from cxrlab.data.makers import MAKERS

# Stands for a part of a composition of which nobody knows where it comes from.
UNKNOWN = "unknown"


def collections_of(card: Card) -> tuple[str, ...]:
    """The collections that a card names; a corpus made here is a collection of its maker's name.

    A card without any is a `DataError`: nobody can say what such a corpus is foreign to.
    """
    found = known_collections(card)
    if UNKNOWN not in found:
        return found
    raise DataError(
        f"the card of the corpus '{card.name}' does not name all its collections, so nobody can say whether it is "
        "external; write 'collections: [NAME]' into its card.yaml, with the hospital that its images come from."
    )


def known_collections(card: Card) -> tuple[str, ...]:
    """The same, with `unknown` for a corpus that names none."""
    return card.collections or ((card.name,) if card.name in MAKERS else (UNKNOWN,))


def check_external(seen: Card, tested: Card) -> None:
    """Refuse to call `tested` external to what was learnt from `seen` when they share a collection."""
    refuse_shared(collections_of(seen), collections_of(tested), f"the corpus '{seen.name}'", tested.name)


def refuse_shared(seen: Collection[str], tested: Collection[str], who: str, name: str) -> None:
    """Raise a `DataError` when two lists of collections meet.

    Args:
        seen: Collections that were learnt from.
        tested: Collections of the corpus that is to be external.
        who: What has seen them, for the message.
        name: The corpus that is to be external.
    """
    if shared := [one for one in tested if one in set(seen)]:
        raise DataError(
            f"'{name}' is not external: its images come from {', '.join(shared)}, and so do those of {who}; choose a "
            "corpus of another collection, or do not call it external."
        )
