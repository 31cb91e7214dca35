"""The parts of a report model by name: a vision encoder, a language model.

`hf:FOLDER` takes the vision encoder out of a dual encoder, a LLaVA or a plain vision model, and the language
model out of a causal one or a LLaVA. `builtin:NAME` are the folders that ship with the package, and
`fresh:phantom|tiny|outsider` are random weights; those of `outsider` are of other families than the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, DataError, UnknownName, did_you_mean
from cxrlab.core.files import read_json
from cxrlab.core.vocabulary import DRAWN
from cxrlab.models.hf.adapters import is_adapter, lineage, merged, resolve
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.local_files import (
    DUAL_ENCODERS,
    first_line,
    load_image_processor,
    load_tokenizer,
    locate,
    pickled_code_refused,
    quiet_loading,
)
from cxrlab.models.model_card import read_model_card
from cxrlab.models.prompts import load_prompts, prompt_names
from cxrlab.models.random_init import (
    IMAGE,
    OUTSIDER,
    PAD,
    PHANTOM,
    TINY,
    Size,
    build_image_processor,
    build_language_model,
    build_outsider_language_model,
    build_outsider_vision_encoder,
    build_text_encoder,
    build_vision_encoder,
    train_tokenizer,
    train_word_pieces,
)

SIZES = {"phantom": PHANTOM, "tiny": TINY}
_NARRATED = 600  # patients whose reports a fresh tokenizer is made from
_KINDS = ("hf", "builtin", "fresh")


@dataclass(frozen=True, eq=False)
class VisionEncoder:
    """A vision encoder.

    Args:
        model: Takes pixels [B, 3, H, W]; its hidden states have a class token in front of the patches.
        image_processor: Images into pixels.
        source: The name that it was asked for by.
        collections: Collections of images that it has learnt from.
        trained_on: See `ModelCard.learnt_from`.
    """

    model: Any
    image_processor: Any
    source: str
    collections: tuple[str, ...] = ()
    trained_on: str | None = None


@dataclass(frozen=True, eq=False)
class Language:
    """A language model: a causal model of transformers, its tokenizer, its name, and images that it has learnt from."""

    model: Any
    tokenizer: Any
    source: str
    collections: tuple[str, ...] = ()
    trained_on: str | None = None


def load_vision_encoder(name: str, *, seed: int = 0, dtype: str = "float32") -> VisionEncoder:
    """The vision encoder of this name, such as `hf:runs/encoder/checkpoint` or `fresh:phantom`.

    Args:
        name: KIND:ARGUMENT.
        seed: Decides the weights of a fresh one.
        dtype: Of the weights.
    """
    kind, argument = parse_part(name, "a vision encoder")
    if kind == "fresh":
        fresh = fresh_of(argument, name)
        return VisionEncoder(_cast(fresh.vision_encoder(seed), dtype), build_image_processor(fresh.image), name)
    folder = folder_of(name)
    model = _cast(open_part(folder, vision_encoder_of, "a vision encoder"), dtype)
    found = VisionEncoder(model, image_processor_of(folder), name, *_learnt(folder))
    _check_vision_encoder(found, folder)
    return found


def load_language_model(name: str, *, seed: int = 0, dtype: str = "float32") -> Language:
    """The language model of this name, with `<image>` and a padding token in its tokenizer.

    Args:
        name: KIND:ARGUMENT.
        seed: Decides the weights of a fresh one, and those of tokens that had to be added.
        dtype: Of the weights.
    """
    kind, argument = parse_part(name, "a language model")
    if kind == "fresh":
        fresh = fresh_of(argument, name)
        tokenizer = fresh.tokenizer()
        return Language(_cast(fresh.language(tokenizer, seed), dtype), tokenizer, name)
    folder = folder_of(name)
    model = open_part(folder, language_of, "a language model")
    tokenizer = load_tokenizer(base_folder(folder))
    _add_tokens(model, tokenizer, seed)
    return Language(_cast(model, dtype), tokenizer, name, *_learnt(folder))


def fresh_tokenizer(size: Size) -> Any:
    """A tokenizer made from narrated reports, prompts and answered questions: the same at every call.

    No patient's words are in it; yes and no are tokens of their own, so that one pass tells how likely each is.
    """
    return deepcopy(_fresh_tokenizer(size.vocabulary))  # whoever has one may add tokens to it


@cache
def _fresh_tokenizer(vocabulary: int) -> Any:
    """Made once in a process: the narrating takes seconds."""
    from cxrlab.findings.lexicon import LEXICONS
    from cxrlab.findings.questions import NO, YES, question_about

    every = [load_prompts(name) for name in prompt_names()]
    texts = _requests()
    for name in DRAWN:
        asked = [prompts.question(question_about(name)) for prompts in every]
        texts += [f"{question} {answer}" for question in asked for answer in (YES, NO)]
    return train_tokenizer([*texts, *_narrated(LEXICONS)], vocabulary)


def outsider_tokenizer() -> Any:
    """The tokenizer of `fresh:outsider`: word pieces of prompts and reports of lexicon B, and of no word of lexicon A.

    Reports of lexicon A, in which the phantoms of a victim are described, it cuts into more tokens than their own
    tokenizer does.
    """
    return deepcopy(_outsider_tokenizer())


@cache
def _outsider_tokenizer() -> Any:
    return train_word_pieces([*_requests(), *_narrated(("B",))], OUTSIDER.vocabulary)


def _requests() -> list[str]:
    """How every row of the prompts' table asks for a report."""
    every = [load_prompts(name) for name in prompt_names()]
    return [text for prompts in every for text in (prompts.findings, prompts.findings_without_indication)]


def _narrated(lexicons: Iterable[str]) -> list[str]:
    """The sections of the reports of a few hundred drawn patients in the words of these lexicons."""
    from cxrlab.findings.cases import draw_patient
    from cxrlab.findings.narrator import narrate

    texts: list[str] = []
    names = tuple(lexicons)
    for number in range(_NARRATED):
        for visit_number, visit in enumerate(draw_patient(0, f"p{number}").visits):
            for lexicon in names:
                told = narrate(visit, 0, f"p{number}/{visit_number}", lexicon).report
                texts += [text for text in (told.indication, told.findings, told.impression) if text]
    return texts


@dataclass(frozen=True)
class Fresh:
    """How the parts of one name are made from nothing.

    Args:
        image: Side of the image in pixels.
        vision_encoder: Seed → vision encoder.
        tokenizer: Makes the tokenizer.
        language: (tokenizer, seed) → language model.
    """

    image: int
    vision_encoder: Callable[[int], Any]
    tokenizer: Callable[[], Any]
    language: Callable[[Any, int], Any]


def _of_size(size: Size) -> Fresh:
    return Fresh(
        size.image,
        lambda seed: build_vision_encoder(size, seed),
        partial(fresh_tokenizer, size),
        lambda tokenizer, seed: build_language_model(tokenizer, size, seed),
    )


FRESH: Mapping[str, Fresh] = MappingProxyType(
    {
        **{name: _of_size(size) for name, size in SIZES.items()},
        "outsider": Fresh(
            OUTSIDER.image,
            partial(build_outsider_vision_encoder, OUTSIDER),
            outsider_tokenizer,
            lambda tokenizer, seed: build_outsider_language_model(tokenizer, OUTSIDER, seed),
        ),
    }
)


def fresh_of(argument: str, name: str) -> Fresh:
    """How a fresh vision encoder or language model of this name is made."""
    if argument not in FRESH:
        raise UnknownName(f"'{name}' is no fresh part.{did_you_mean(argument, FRESH)} There are: {', '.join(FRESH)}.")
    return FRESH[argument]


def parse_part(name: str, what: str) -> tuple[str, str]:
    """Kind and argument of the name of a part; `what` it should be, with its article, for the message."""
    kind, colon, argument = name.partition(":")
    if not colon or not argument:
        raise ConfigError(f"'{name}' does not name {what}; write KIND:ARGUMENT, for example fresh:phantom.")
    if kind not in _KINDS:
        raise UnknownName(
            f"'{kind}' (in '{name}') is no kind of {what[2:]}.{did_you_mean(kind, _KINDS)} There are: hf:FOLDER, "
            f"builtin:NAME, {', '.join(f'fresh:{one}' for one in FRESH)}."
        )
    return kind, argument


def size_of(argument: str, name: str) -> Size:
    """How large a fresh text encoder of this name is; one of another family than `building.py` has none."""
    if argument not in SIZES:
        raise UnknownName(f"'{name}' is no text encoder.{did_you_mean(argument, SIZES)} Sizes: {', '.join(SIZES)}.")
    return SIZES[argument]


def _check_vision_encoder(vision_encoder: VisionEncoder, folder: Path) -> None:
    """Run one blank image through: the patches must follow one class token, which is dropped later."""
    import torch

    config = vision_encoder.model.config
    patches = (config.image_size // config.patch_size) ** 2
    dtype = next(vision_encoder.model.parameters()).dtype
    with torch.no_grad():
        blank = torch.zeros(1, 3, config.image_size, config.image_size, dtype=dtype)
        tokens = int(vision_encoder.model(blank, output_hidden_states=True).hidden_states[-1].shape[1])
    if tokens != patches + 1:
        raise DataError(
            f"the encoder in {folder} gives {tokens} tokens for {patches} patches; one class token must stand in front "
            "of them, as in DINOv2, CLIP and ViT."
        )


def _add_tokens(model: Any, tokenizer: Any, seed: int) -> None:
    """Give the tokenizer what a LLaVA needs, and the model rows for it."""
    import torch

    if tokenizer.pad_token is None:
        tokenizer.add_special_tokens({"pad_token": PAD})
    if tokenizer.eos_token is None:
        raise DataError("the tokenizer of the language model has no end token, so a report would never end.")
    known = tokenizer.convert_tokens_to_ids(IMAGE)
    if known is None or known == tokenizer.unk_token_id:
        tokenizer.add_tokens([IMAGE], special_tokens=True)
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        torch.manual_seed(seed)
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)


def _learnt(folder: Path) -> tuple[tuple[str, ...], str | None]:
    """Collections, and what they are."""
    card = read_model_card(folder)
    return (card.collections, card.learnt_from) if card is not None else ((), None)


def _cast(model: Any, dtype: str) -> Any:
    import torch

    return model.to(getattr(torch, dtype)).eval()


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A text encoder: a model of transformers that gives a vector a token, its tokenizer, and its name."""

    model: Any
    tokenizer: Any
    source: str


def load_text_encoder(name: str, *, seed: int = 0) -> TextEncoder:
    """The text encoder of this name, such as `hf:models/pubmedbert` or `fresh:phantom`.

    Args:
        name: KIND:ARGUMENT.
        seed: Decides the weights of a fresh one.
    """
    kind, argument = parse_part(name, "a text encoder")
    if kind == "fresh":
        size = size_of(argument, name)
        tokenizer = fresh_tokenizer(size)
        return TextEncoder(build_text_encoder(tokenizer, size, seed), tokenizer, name)
    return _from_folder(name)


def _from_folder(name: str) -> TextEncoder:
    folder = folder_of(name)
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; name the folder of a text encoder, such as a BERT.")
    tokenizer = load_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        raise DataError(f"the tokenizer in {folder} has no padding token, so reports of unlike length make no batch.")
    try:
        with quiet_loading():
            model = _text_model(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"a text encoder cannot be taken out of {folder} ({first_line(error)}).") from error
    if not hasattr(model.config, "vocab_size") or hasattr(model.config, "vision_config"):
        raise DataError(
            f"{folder} holds a model of the type '{model.config.model_type}', which does not read text alone; name a "
            "text encoder, such as a BERT."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {len(tokenizer):,} tokens and the model {model.config.vocab_size:,}; "
            "they do not belong together."
        )
    return TextEncoder(model, tokenizer, name)


def _text_model(folder: Path) -> Any:
    from transformers import AutoModel

    config = read_json(folder / "config.json")
    if isinstance(config, dict) and config.get("model_type") in DUAL_ENCODERS:
        from cxrlab.models.projected_encoder import dual_encoder_class

        return loaded(dual_encoder_class(folder), folder).text_model
    return loaded(AutoModel, folder)


_POOLING = frozenset({"pooler", "head"})  # whole parts of a name: lm_head is another thing


def folder_of(name: str) -> Path:
    """The local folder of `hf:FOLDER_OR_ID` or `builtin:NAME`; of a run folder, the checkpoint in it."""
    require("models")
    return locate(resolve(name, Path()), LoadSettings(), may_fetch=False)


def base_folder(folder: Path) -> Path:
    """The folder itself, or what an adapter stands on, where it has no tokenizer of its own."""
    line = lineage(folder, LoadSettings())
    return next((each for each in line if (each / "tokenizer_config.json").is_file()), line[-1])


def open_part(folder: Path, take: Callable[[Path, str], Any], what: str) -> Any:
    """What `take` finds in the folder; whatever transformers raises becomes one sentence."""
    if is_adapter(folder):
        return take(folder, "llava")
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; name the folder of a model with {what} in it.")
    config = read_json(folder / "config.json")
    kind = str(config.get("model_type")) if isinstance(config, dict) else "None"
    try:
        with quiet_loading():
            found = take(folder, kind)
    except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
        raise DataError(f"{what} cannot be taken out of {folder} ('{kind}'): {first_line(error)}.") from error
    if found is None:
        raise DataError(f"{folder} holds a model of the type '{kind}', which has not {what} that can be taken out.")
    return found.eval()


def vision_encoder_of(folder: Path, kind: str) -> Any:
    """The vision encoder of a dual encoder, a LLaVA, a CLIP or a vision model; None for another kind."""
    from transformers import AutoConfig, AutoModel, CLIPVisionModel

    if kind in DUAL_ENCODERS:
        from cxrlab.models.projected_encoder import dual_encoder_class

        return loaded(dual_encoder_class(folder), folder).vision_model
    if kind == "llava":
        return _llava(folder).model.vision_tower
    if kind == "clip":
        return loaded(CLIPVisionModel, folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    plain = hasattr(config, "image_size") and hasattr(config, "patch_size") and not hasattr(config, "text_config")
    return loaded(AutoModel, folder) if plain else None


def language_of(folder: Path, kind: str) -> Any:
    """The language model of a LLaVA or a causal model; None for another kind."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if kind == "llava":
        return _causal(_llava(folder))
    if kind in CAUSAL:
        return loaded(AutoModelForCausalLM, folder)
    return None


def loaded(kind: Any, folder: Path) -> Any:
    """A model whose tensors all come from the folder; a pooling head, which no part needs trained, may be missing."""
    settings = {"local_files_only": True, "trust_remote_code": False, "output_loading_info": True}
    with pickled_code_refused(folder):
        model, told = kind.from_pretrained(folder, **settings)
    missing = sorted(name for name in told["missing_keys"] if _POOLING.isdisjoint(name.split(".")))
    if missing:
        raise DataError(
            f"{folder} lacks {len(missing)} of the model's tensors (for example {missing[0]}), which would be random; "
            "copy or fetch it again."
        )
    return model


def _llava(folder: Path) -> Any:
    """The LLaVA of a folder, adapters merged into its weights."""
    from transformers import LlavaForConditionalGeneration

    *above, whole = lineage(folder, LoadSettings())
    model = loaded(LlavaForConditionalGeneration, whole)
    for adapter in reversed(above):
        model = merged(model, adapter)
    return model


def _causal(llava: Any) -> Any:
    """The language model of a LLaVA with its head, as a causal model; its tensors are used, not copied."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(llava.config.text_config)
    model.model = llava.model.language_model
    model.lm_head = llava.lm_head
    return model


def image_processor_of(folder: Path) -> Any:
    """The image processor of a folder; of an adapter, what belongs to its vision encoder."""
    return load_image_processor(base_folder(folder) if is_adapter(folder) else folder)
