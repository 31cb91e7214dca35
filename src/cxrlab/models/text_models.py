"""How a language model for text is named, and how a name becomes one.

A name is split at its first colon into kind and argument; a web address is taken whole. The word
`rules` names no model: a structurer, judge or oracle has rules of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError, UnknownName, nearest
from cxrlab.core.tables import Table

if TYPE_CHECKING:
    from cxrlab.core.protocols import TextModel

# Each row is a class with USAGES (name → what it does) and load(argument) -> TextModel.
TEXT_KINDS = Table("kind of text model", {"scripted": "cxrlab.models.scripted:Scripted"})


def load_text_model(name: str) -> TextModel:
    """The text model of this name.

    Args:
        name: Such as `scripted:answers.jsonl`.
    """
    kind, colon, argument = name.partition(":")
    if not colon or not kind or not argument:
        raise ConfigError(
            f"'{name}' is not the name of a text model; write KIND:ARGUMENT, for example {next(iter(_usages()))}."
        )
    if kind not in TEXT_KINDS:
        raise UnknownName(
            f"this version has no text models of the kind '{kind}' (asked for by '{name}').{nearest(kind, TEXT_KINDS)} "
            f"There are: {', '.join(_usages())}."
        )
    load: Callable[[str], TextModel] = TEXT_KINDS.load(kind).load
    return load(argument)


def _usages() -> dict[str, str]:
    """Names as a user writes them, of every kind, each with what it does."""
    return {name: does for kind in map(TEXT_KINDS.load, TEXT_KINDS) for name, does in kind.USAGES.items()}
