"""The card of a corpus: what it is, where it comes from, what may be done with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.config import flatten, read_yaml
from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.json_values import plain
from cxrlab.core.registry import Registry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CARD = "card.yaml"
# Synthetic corpora that are made here; each is a collection of its own name.
MAKERS = Registry(
    "corpus maker",
    {
        "phantom": "cxrlab.data.phantom.corpus:make_phantom",
        "scenes": "cxrlab.data.synthetic_scenes:make_scenes",
    },
)
# What a study may lack (see `Card.absent`) → the kind of problem, and what to do about it.
LACKS = {
    "text": ("study without report text", "has neither findings, impression nor report; add the text"),
    "split": ("study without a split", "has no 'split'; write train, val or test"),
    "view": ("image without a view", "has an image without 'view'; write PA, AP, frontal, lateral or other"),
}
_TALLIES = ("counts", "dropped", "remarks", "absent")
_LEFT_OUT_WHEN_EMPTY = ("synthetic", "collections", "dropped", "remarks", "absent")


@dataclass(frozen=True)
class Card:
    """The contents of `card.yaml`, without times and paths of a machine, so that equal corpora have equal cards."""

    name: str
    source: str = ""
    licence: str = ""
    citation: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of its maker that change the bytes
    # Studies, patients, images, and studies by split; filled in when the corpus is complete.
    counts: Mapping[str, int] = field(default_factory=dict)
    # Whether images and texts are generated. Any other corpus counts as patients' data, see `core.egress`.
    synthetic: bool = False
    # Hospital collections of the images; a corpus of the same collection is not external.
    collections: tuple[str, ...] = ()
    # Why studies of the source were left out → how many; filled in when the corpus is complete.
    dropped: Mapping[str, int] = field(default_factory=dict)
    remarks: Mapping[str, int] = field(default_factory=dict)  # oddities of studies that were kept → how many; likewise
    # What the source does not have → how many: `text` and `split` count studies, `view` counts images. None if the card
    # does not state it; an importer gives an empty mapping, which is filled in likewise.
    absent: Mapping[str, int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_yaml(self) -> str:
        """The text of the file, keys in the order above; what only some corpora have is left out when empty."""
        import yaml

        values = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "extra"}
        values = {key: value for key, value in values.items() if value or key not in _LEFT_OUT_WHEN_EMPTY}
        text: str = yaml.safe_dump({**values, **self.extra}, sort_keys=False, allow_unicode=True, width=110)
        return text

    def difference(self, other: Card) -> str:
        """Up to three values in which two cards differ, counts aside; empty when they agree."""

        def flat(card: Card) -> dict[str, Any]:
            # Settings before what follows from them. Without `synthetic`: older cards of the same corpus lack it.
            rest = {"source": card.source, "licence": card.licence, "citation": card.citation}
            if card.collections:
                rest["collections"] = ", ".join(card.collections)
            return {"name": card.name, **flatten(plain(card.settings)), **rest, **plain(card.extra)}

        mine, theirs = flat(self), flat(other)
        keys = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
        return ", ".join(
            f"{key} is {short_repr(theirs.get(key))} there and {short_repr(mine.get(key))} here" for key in keys[:3]
        )


def read_card(path: Path) -> Card:
    """Read and check a `card.yaml`."""
    values, _ = read_yaml(path)
    if not isinstance(values.get("name"), str):
        raise DataError(f"{path} is not a corpus card; it needs at least a text 'name'.")
    known = [f.name for f in dataclasses.fields(Card) if f.name != "extra"]
    for key in ("settings", *_TALLIES):
        if not isinstance(values.get(key) or {}, dict):
            raise DataError(f"{path} has a '{key}' that is not a mapping; correct it or make the corpus again.")
    for key, count in ((key, count) for tally in _TALLIES for key, count in (values.get(tally) or {}).items()):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise DataError(
                f"{path} counts '{key}' as {short_repr(count)}; write a whole number, or make the corpus again."
            )
    given = {key: values[key] for key in known if values.get(key) is not None}
    collections = given.get("collections", [])
    if not isinstance(collections, list) or not all(isinstance(name, str) for name in collections):
        raise DataError(f"{path} has 'collections' that are no list of names; correct it or make the corpus again.")
    given["collections"] = tuple(collections)
    if not isinstance(given.get("synthetic", False), bool):
        raise DataError(f"{path} has synthetic: {short_repr(given['synthetic'])}; write true or false.")
    return Card(**given, extra={key: value for key, value in values.items() if key not in known})


def card_settings(config: DataclassInstance) -> dict[str, Any]:
    """A maker's config as plain values for a card, without the number of workers."""
    return {key: value for key, value in plain(config).items() if key != "workers"}


# The collection of a corpus whose card names none.
UNKNOWN = "unknown"


def collections_of(card: Card) -> tuple[str, ...]:
    """The collections that a card names, else the name of its maker; a card without either is a `DataError`."""
    found = known_collections(card)
    if UNKNOWN not in found:
        return found
    raise DataError(
        f"the card of the corpus '{card.name}' does not name all its collections, so whether it is external is unknown; "
        "write 'collections: [NAME]' into its card.yaml, with the hospital that its images come from."
    )


def known_collections(card: Card) -> tuple[str, ...]:
    """The same, with `unknown` for a corpus that names none."""
    return card.collections or ((card.name,) if card.name in MAKERS else (UNKNOWN,))


def check_external(seen: Card, tested: Card) -> None:
    """Raise a `DataError` when the corpus tested shares a collection with the corpus seen in training."""
    check_no_shared_collections(collections_of(seen), collections_of(tested), f"the corpus '{seen.name}'", tested.name)


def check_no_shared_collections(seen: Collection[str], tested: Collection[str], who: str, name: str) -> None:
    """Raise a `DataError` when two lists of collections meet."""
    if shared := [one for one in tested if one in set(seen)]:
        raise DataError(
            f"'{name}' is not external: its images come from {', '.join(shared)}, and so do those of {who}; choose a "
            "corpus of another collection, or do not call it external."
        )
