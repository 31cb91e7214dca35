"""What an attacker has of the victim before the first query: weights that victim and surrogate or guide share.

The paper's second surrogate begins with the victim's encoder. That is more than an attacker from outside has, so it is
told beside the threat model. Model cards tell what a model was made from; without a card nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.errors import CxrlabError
from cxrlab.extraction.surrogate import parse_surrogate
from cxrlab.models.hf.adapters import resolve
from cxrlab.models.model_card import read_model_card
from cxrlab.training.llava import start_model_name

_WITH_WEIGHTS = ("hf:", "builtin:")
_NEW = "fresh:"  # weights that nobody has trained yet


def shared_parts(victim: str, surrogate: str, guide: str | None = None) -> list[str]:
    """Names of what the attacker has and the victim was made from too, as cards write them; none where none is known.

    Of a part that is shared as a whole its own origins are not named.

    Args:
        victim: Name of the attacked model; one without weights of its own shares nothing.
        surrogate: Name of the surrogate, or of its parts.
        guide: Name of the encoder that moves pictures, where one does.
    """
    if not victim.startswith(_WITH_WEIGHTS):
        return []
    parts = parse_surrogate(surrogate)
    mine = [start_model_name(parts.start) if parts.start else None, parts.encoder, parts.language_model, guide]
    theirs = {place for _, place in _family([victim])}
    return [name for name, place in _family([one for one in mine if one], theirs) if place in theirs]


def told(shared: Sequence[str]) -> str:
    """A sentence for the threat model; empty where nothing is shared."""
    if not shared:
        return ""
    return f"The attacker begins with weights that the victim was made from: {', '.join(shared)}."


def _family(names: Sequence[str], until: set[str] | frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Name and place of models and of everything that they were made from, each place once.

    Args:
        names: Of the models.
        until: Places behind which nobody looks.
    """
    waiting, seen = [(name, Path()) for name in names], set[str]()
    while waiting:
        name, folder = waiting.pop(0)
        place = _place(name, folder)
        if place in seen or name.startswith(_NEW):
            continue
        seen.add(place)
        yield name, place
        if place not in until:
            waiting += [(origin, Path(place)) for origin in _made_from(Path(place))]


def _made_from(folder: Path) -> list[str]:
    """Names that a model's card gives; a relative path counts from the folder."""
    card = read_model_card(folder) if folder.is_dir() else None
    if card is None:
        return []
    told: Any = card.extra.get("made_from")
    values = [*(told.values() if isinstance(told, Mapping) else (told,)), card.base]
    return [value for value in values if isinstance(value, str)]


def _place(name: str, folder: Path) -> str:
    """Folder or hub id of a model, the same whatever its name; the name itself where nothing is there."""
    try:
        found = resolve(name, folder)
    except CxrlabError:  # such as built-in weights that this copy does not have
        return name
    return str(found.resolve()) if isinstance(found, Path) else found
