"""How a model is named, and how a name becomes a model.

A name is split at its first colon into kind and argument (`retrieval:corpora/phantom`); a web
address is taken whole, since it has colons of its own. Models of images and models of text have a table each. The
word `rules` names no text model: a structurer, judge or oracle has rules of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.endpoints import SCHEMES, Connection, is_address
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.tables import Table
from cxrlab.models.load_settings import LoadSettings

if TYPE_CHECKING:
    from cxrlab.core.protocols import ImageToText, TextModel
    from cxrlab.models.baselines import Library
    from cxrlab.models.dual_encoder import DualEncoder

# Each row is a class with USAGES (name → what it does) and load(argument, library, loading) -> ImageToText. Those of
# addresses also take `synthetic`: whether everything that is sent is known to be synthetic.
KINDS = Table(
    "kind of model",
    {
        "stub": "cxrlab.models.baselines:Stub",
        "retrieval": "cxrlab.models.baselines:Retrieval",
        "hf": "cxrlab.models.hf.model:HfModel",
        "builtin": "cxrlab.models.builtin:Builtin",
        "http": "cxrlab.models.http_models:HttpReportModel",
        "https": "cxrlab.models.http_models:HttpReportModel",
    },
)
# Each row is a class with USAGES and load(argument, connection, loading) -> TextModel, with `synthetic` for addresses.
TEXT_KINDS = Table(
    "kind of text model",
    {
        "hf": "cxrlab.models.hf.text_model:HfTextModel",
        "http": "cxrlab.models.http_models:HttpTextModel",
        "https": "cxrlab.models.http_models:HttpTextModel",
        "scripted": "cxrlab.models.baselines:ScriptedTextModel",
    },
)
# Each row is a class with USAGES and load(argument, loading) -> DualEncoder.
ENCODER_KINDS = Table(
    "kind of encoder",
    {"hf": "cxrlab.models.dual_encoder:DualEncoder", "builtin": "cxrlab.models.builtin:BuiltinEncoder"},
)


@dataclass(frozen=True)
class ModelName:
    """A name in two parts.

    Args:
        kind: What stands before the first colon; `http` or `https` for an address.
        argument: What stands after it; the whole name for an address.
    """

    kind: str
    argument: str


def parse_name(name: str, kinds: Table = KINDS) -> ModelName:
    """Split a name at its first colon; an address is kept whole.

    Args:
        name: Such as `stub:normal`.
        kinds: The table that an example is taken from when this is no name.
    """
    kind, colon, argument = name.partition(":")
    if not colon or not kind or not argument:
        of = kinds.what.partition("kind of ")[2]
        article = "an" if of[0] in "aeiou" else "a"
        raise ConfigError(f"'{name}' is not the name of {article} {of}; {how_to_name(name, kinds)}.")
    return ModelName(kind, name if kind in SCHEMES else argument)


def how_to_name(name: str, kinds: Table = KINDS) -> str:
    """What to write for a name without a kind, such as `gpt-4o` or `microsoft/llava-rad`, as the end of a sentence.

    Args:
        name: What was given.
        kinds: The table of models that are meant.
    """
    if not name or ":" in name or name in kinds:
        own = [usage for kind in kinds if kind == name.partition(":")[0] for usage in kinds.load(kind).USAGES]
        return f"write KIND:ARGUMENT, for example {next(iter(own or _usages(kinds)))}"
    if whole := [usage for usage in _usages(kinds) if usage.partition(":")[2] == name]:
        return f"write {' or '.join(whole)}"
    plain = re.sub(r"[\W_]+", "", name.lower())
    layout = next((layout for known, layout in _PUBLISHED.items() if known in plain), None)
    ways = [] if _HOSTED.match(name) else [f"write hf:{name} for weights of the Hugging Face layout"]
    if layout is not None:
        ways = [
            f"write hf:{name}; its published files have another layout, so make a folder of them first with 'cxrlab "
            f"models convert {layout} SOURCE --out FOLDER' and write hf:FOLDER"
        ]
    if "https" in kinds and layout is None:
        ways.append(
            f"{'or' if ways else 'write'} https://HOST/v1#{name} for a model behind an OpenAI-compatible address"
        )
    return ", ".join(ways)


_HOSTED = re.compile(r"(chatgpt|gpt-[345]|o[1-9](-|$)|claude|gemini|grok)", re.IGNORECASE)  # without public weights
_PUBLISHED = {"llavarad": "llava-rad", "biomedclip": "open-clip"}  # in a name → layout of `models convert`


def load_model(
    name: str, library: Library, loading: LoadSettings | None = None, *, synthetic: bool = False
) -> ImageToText:
    """The model of this name; one elsewhere refuses whatever it is asked without a permission in the connection.

    Args:
        name: Such as `stub:normal`; see `list_models`.
        library: Opens the corpus that a name mentions; called only for kinds that look among images.
        loading: Device, precision, prompts; kinds without weights pass over it.
        synthetic: Whether everything that it will be asked is known to be synthetic, so that no permission is needed.
    """
    more = {"synthetic": synthetic} if is_address(name) else {}
    found: ImageToText = _kind(name, KINDS).load(parse_name(name).argument, library, loading or LoadSettings(), **more)
    return found


def load_text_model(
    name: str, connection: Connection | None = None, loading: LoadSettings | None = None, *, synthetic: bool = False
) -> TextModel:
    """The text model of this name, such as `hf:FOLDER`; whoever shows it a corpus goes through `open_text_model`.

    Args:
        name: KIND:ARGUMENT, or an address.
        connection: How an address is asked; models on this machine pass over it.
        loading: Device, precision, download …; models behind an address pass over it.
        synthetic: Whether everything that it will be asked is known to be synthetic, so that no permission is needed.
    """
    argument, more = parse_name(name, TEXT_KINDS).argument, {"synthetic": synthetic} if is_address(name) else {}
    found: TextModel = _kind(name, TEXT_KINDS).load(
        argument, connection or Connection(), loading or LoadSettings(), **more
    )
    return found


def load_encoder(name: str, loading: LoadSettings | None = None) -> DualEncoder:
    """The contrastive encoder of this name, such as `hf:runs/encoder/checkpoint`.

    Args:
        name: KIND:ARGUMENT.
        loading: Device and precision.
    """
    argument = parse_name(name, ENCODER_KINDS).argument
    found: DualEncoder = _kind(name, ENCODER_KINDS).load(argument, loading or LoadSettings())
    return found


def list_models() -> list[dict[str, str]]:
    """How to name a model, with what it reads and what it does."""
    tables = (("images", KINDS), ("text", TEXT_KINDS), ("images and text", ENCODER_KINDS))
    return [
        {"name": name, "reads": reads, "does": purpose}
        for reads, kinds in tables
        for name, purpose in _usages(kinds).items()
    ]


def _kind(name: str, kinds: Table) -> Any:
    """The row that the kind of a name stands for."""
    kind = parse_name(name, kinds).kind
    if kind not in kinds:
        of = kinds.what.partition("kind of ")[2]
        raise UnknownName(
            f"this version has no {of}s of the kind '{kind}' (asked for by '{name}').{did_you_mean(kind, kinds)} "
            f"There are: {', '.join(_usages(kinds))}."
        )
    return kinds.load(kind)


def _usages(kinds: Table) -> dict[str, str]:
    """Names as a user writes them, of every kind, each with what it does."""
    return {name: purpose for kind in map(kinds.load, kinds) for name, purpose in kind.USAGES.items()}
