"""How a model is named, and how a name becomes a model.

A name is split at its first colon into kind and argument (`retrieval:corpora/phantom`); a web
address is taken whole, since it has colons of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError, UnknownName, nearest
from cxrlab.core.tables import Table

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText
    from cxrlab.models.retrieval import Library

# Each row is a class with USAGES (name → what it does) and load(argument, library) -> ImageToText.
KINDS = Table(
    "kind of model",
    {
        "stub": "cxrlab.models.stub:Stub",
        "retrieval": "cxrlab.models.retrieval:Retrieval",
    },
)
_ADDRESSES = ("http", "https")


@dataclass(frozen=True)
class ModelName:
    """A name in two parts.

    Args:
        kind: What stands before the first colon; `http` or `https` for an address.
        argument: What stands after it; the whole name for an address.
    """

    kind: str
    argument: str


def parse_name(name: str) -> ModelName:
    """Split a name at its first colon; an address is kept whole."""
    kind, colon, argument = name.partition(":")
    if not colon or not kind or not argument:
        raise ConfigError(
            f"'{name}' is not the name of a model; write KIND:ARGUMENT, for example {next(iter(_usages()))}."
        )
    return ModelName(kind, name if kind in _ADDRESSES else argument)


def load_model(name: str, library: Library) -> ImageToText:
    """The model of this name.

    Args:
        name: Such as `stub:normal`; see `list_models`.
        library: Opens the corpus that a name mentions; called only for kinds that look among films.
    """
    parsed = parse_name(name)
    if parsed.kind not in KINDS:
        hint = nearest(parsed.kind, KINDS)
        raise UnknownName(
            f"this version has no models of the kind '{parsed.kind}' (asked for by '{name}').{hint} "
            f"There are: {', '.join(_usages())}."
        )
    load: Callable[[str, Library], ImageToText] = KINDS.load(parsed.kind).load
    return load(parsed.argument, library)


def list_models() -> list[dict[str, str]]:
    """How to name a model, with what each does."""
    return [{"name": name, "does": purpose} for name, purpose in _usages().items()]


def _usages() -> dict[str, str]:
    """Names as a user writes them, of every kind, each with what it does."""
    return {name: purpose for kind in map(KINDS.load, KINDS) for name, purpose in kind.USAGES.items()}
