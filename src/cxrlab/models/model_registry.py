"""Kinds of models, and names such as `retrieval:corpora/phantom` (`KIND:ARGUMENT`) or a web address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.egress import SCHEMES, Connection, is_address
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.registry import Registry
from cxrlab.models.load_settings import LoadSettings

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import TextModel
    from cxrlab.models.dual_encoder import DualEncoder

# Each row is a class with USAGES (name → what it does) and load(argument, library, loading) -> ImageToText. Those for
# addresses also take `synthetic`: whether all data sent is known to be synthetic.
KINDS = Registry(
    "kind of model",
    {
        "stub": "cxrlab.models.baselines:Stub",
        "retrieval": "cxrlab.models.baselines:Retrieval",
        "hf": "cxrlab.models.hf.model:HfModel",
        "builtin": "cxrlab.models.builtin:Builtin",
        "chexagent": "cxrlab.models.foreign_models:CheXagent",
        "chexagent-2": "cxrlab.models.foreign_models:CheXagent2",
        "maira-2": "cxrlab.models.foreign_models:Maira2",
        "http": "cxrlab.models.http_models:HttpReportModel",
        "https": "cxrlab.models.http_models:HttpReportModel",
    },
)
# Each row is a class with USAGES and load(argument, connection, loading) -> TextModel, with `synthetic` for addresses.
TEXT_KINDS = Registry(
    "kind of text model",
    {
        "hf": "cxrlab.models.hf.text_model:HfTextModel",
        "http": "cxrlab.models.http_models:HttpTextModel",
        "https": "cxrlab.models.http_models:HttpTextModel",
        "scripted": "cxrlab.models.baselines:ScriptedTextModel",
    },
)
# Each row is a class with USAGES and load(argument, loading) -> DualEncoder.
ENCODER_KINDS = Registry(
    "kind of encoder",
    {"hf": "cxrlab.models.dual_encoder:DualEncoder", "builtin": "cxrlab.models.builtin:BuiltinEncoder"},
)


@dataclass(frozen=True)
class ModelName:
    """Kind and argument of a name; for an address `http` or `https`, and the whole name."""

    kind: str
    argument: str


def parse_name(name: str, kinds: Registry = KINDS) -> ModelName:
    """Split a name at its first colon; `kinds` gives the example in the error."""
    kind, colon, argument = name.partition(":")
    if not colon or not kind or not argument:
        of = kinds.what.partition("kind of ")[2]
        article = "an" if of[0] in "aeiou" else "a"
        raise ConfigError(f"'{name}' is not the name of {article} {of}; {how_to_name(name, kinds)}.")
    return ModelName(kind, name if kind in SCHEMES else argument)


def how_to_name(name: str, kinds: Registry = KINDS) -> str:
    """Advice for a name without a kind, such as `gpt-4o` or `microsoft/llava-rad`, as the end of a sentence."""
    if not name or ":" in name or name in kinds:
        own = [usage for kind in kinds if kind == name.partition(":")[0] for usage in kinds.load(kind).USAGES]
        return f"write KIND:ARGUMENT, for example {next(iter(own or _usages(kinds)))}"
    if whole := [usage for usage in _usages(kinds) if usage.partition(":")[2] == name]:
        return f"write {' or '.join(whole)}"
    plain = re.sub(r"[\W_]+", "", name.lower())
    if kind := next((kind for known, kind in _OWN_CODE.items() if known in plain and kind in kinds), None):
        return f"write {kind}:{name} for the published model with its own code"
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
_OWN_CODE = {"chexagent2": "chexagent-2", "chexagent8b": "chexagent", "maira2": "maira-2"}  # in a name → its kind
_PUBLISHED = {
    "llavarad": "llava-rad",
    "llavamed": "llava",
    "liuhaotianllavav15": "llava",
    "biomedclip": "open-clip",
}  # in a name → layout of `models convert`


def load_text_model(
    name: str, connection: Connection | None = None, loading: LoadSettings | None = None, *, synthetic: bool = False
) -> TextModel:
    """The text model of this name, such as `hf:FOLDER`; callers that send a corpus use `open_text_model`."""
    argument, more = parse_name(name, TEXT_KINDS).argument, {"synthetic": synthetic} if is_address(name) else {}
    found: TextModel = model_class(name, TEXT_KINDS).load(
        argument, connection or Connection(), loading or LoadSettings(), **more
    )
    return found


def load_encoder(name: str, loading: LoadSettings | None = None) -> DualEncoder:
    """The contrastive encoder of this name, such as `hf:runs/encoder/checkpoint`."""
    argument = parse_name(name, ENCODER_KINDS).argument
    found: DualEncoder = model_class(name, ENCODER_KINDS).load(argument, loading or LoadSettings())
    return found


def list_models() -> list[dict[str, str]]:
    """List all forms of model names, with what each reads and does."""
    tables = (("images", KINDS), ("text", TEXT_KINDS), ("images and text", ENCODER_KINDS))
    return [
        {"name": name, "reads": reads, "does": purpose}
        for reads, kinds in tables
        for name, purpose in _usages(kinds).items()
    ]


def model_class(name: str, kinds: Registry = KINDS) -> Any:
    """The class that loads the model of this name, by its row in `kinds`."""
    kind = parse_name(name, kinds).kind
    if kind not in kinds:
        of = kinds.what.partition("kind of ")[2]
        raise UnknownName(
            f"this version has no {of}s of the kind '{kind}' (in '{name}').{did_you_mean(kind, kinds)} "
            f"There are: {', '.join(_usages(kinds))}."
        )
    return kinds.load(kind)


def _usages(kinds: Registry) -> dict[str, str]:
    """Form of a name → what the model does, for every kind."""
    return {name: purpose for kind in map(kinds.load, kinds) for name, purpose in kind.USAGES.items()}
