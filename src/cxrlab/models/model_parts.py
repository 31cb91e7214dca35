"""Load the parts of a report model by name: vision encoder, language model and text encoder.

`hf:FOLDER` extracts the vision encoder of a dual encoder, a LLaVA or a vision model, and the language model of a LLaVA
or a causal model. `builtin:NAME` are folders of the package; `fresh:phantom|tiny|outsider` are random weights, those of
`outsider` of another model family. `package:NAME` is a vision encoder whose weights another package of PyPI holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
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
_NARRATED = 600  # simulated patients whose reports train a fresh tokenizer
_KINDS = ("hf", "builtin", "fresh", "package")
GRID_ENCODER = "grid-encoder"  # model type of `models.grid_encoder`
STORED = "stored"  # a dtype: that of the files


@dataclass(frozen=True, eq=False)
class VisionEncoder:
    """A vision encoder."""

    model: Any  # takes pixels [B, 3, H, W]; its hidden states have a class token before the patches
    image_processor: Any
    source: str  # its name, such as `fresh:phantom`
    collections: tuple[str, ...] = ()  # image collections that it was trained on
    trained_on: str | None = None  # see `ModelCard.learnt_from`
    any_size: bool = False  # a convolutional network, which was opened for the wanted size of images


@dataclass(frozen=True, eq=False)
class Language:
    """A causal language model; the fields are those of `VisionEncoder`."""

    model: Any
    tokenizer: Any
    source: str
    collections: tuple[str, ...] = ()
    trained_on: str | None = None


def load_vision_encoder(
    name: str, *, seed: int = 0, dtype: str = "float32", image_size: int | None = None
) -> VisionEncoder:
    """The vision encoder of a name such as `hf:runs/encoder/checkpoint`, `fresh:phantom` or `package:efficientnet-lite2`.

    Args:
        seed: For `fresh`.
        image_size: Side of the images in pixels, for a convolutional network; others keep the size of their positions.
    """
    import torch

    kind, argument = parse_part(name, "a vision encoder")
    if kind == "fresh":
        fresh = fresh_of(argument, name)
        return VisionEncoder(_cast(fresh.vision_encoder(seed), dtype), build_image_processor(fresh.image), name)
    if kind == "package":
        from cxrlab.models.efficientnet_lite import MEAN as IMAGENET_MEAN
        from cxrlab.models.efficientnet_lite import STD as IMAGENET_STD
        from cxrlab.models.grid_encoder import packaged

        require("models")
        grid = packaged(argument)
        processor = build_image_processor(int(grid.config.image_size), IMAGENET_MEAN, IMAGENET_STD)
        return _sized(VisionEncoder(_cast(grid, dtype), processor, name), image_size)
    folder = folder_of(name)
    model = _cast(open_part(folder, vision_encoder_of, "a vision encoder"), dtype)
    image_processor = load_image_processor(base_folder(folder) if is_adapter(folder) else folder)
    if _is_pyramid(model.config):
        from cxrlab.models.grid_encoder import around

        model = around(model, _side_after(image_processor))
    found = _sized(VisionEncoder(model, image_processor, name, *_trained_on(folder)), image_size)
    # One blank image: before the patches there must be one class token, which is dropped later.
    side, patches = model.config.image_size, (model.config.image_size // model.config.patch_size) ** 2
    with torch.no_grad():
        blank = torch.zeros(1, 3, side, side, dtype=next(model.parameters()).dtype)
        tokens = int(model(blank, output_hidden_states=True).hidden_states[-1].shape[1])
    if tokens != patches + 1:
        raise DataError(
            f"the encoder in {folder} gives {tokens} tokens for {patches} patches; expected one class token before "
            "them, as in DINOv2, CLIP and ViT."
        )
    return found


def _sized(found: VisionEncoder, image_size: int | None) -> VisionEncoder:
    """A convolutional network for images of this side, normalised as before; any other encoder as it is."""
    if getattr(found.model.config, "model_type", None) != GRID_ENCODER:
        return found
    if image_size is None or image_size == found.model.config.image_size:
        return replace(found, any_size=True)
    from cxrlab.models.grid_encoder import resize

    resize(found.model, image_size)
    given = found.image_processor
    processor = build_image_processor(image_size, given.image_mean, given.image_std)
    return replace(found, image_processor=processor, any_size=True)


def _side_after(image_processor: Any) -> int:
    """Side of the square images that an image processor gives."""
    cropped = getattr(image_processor, "do_center_crop", False)
    size = dict(image_processor.crop_size if cropped else image_processor.size)
    return int(size.get("height") or size.get("shortest_edge") or 0)


def _is_pyramid(config: Any) -> bool:
    """Whether a vision model has stages of falling resolution, such as a ResNet or a Swin, and no class token."""
    return hasattr(config, "depths")


def load_language_model(name: str, *, seed: int = 0, dtype: str = "float32") -> Language:
    """The language model of a name, with `<image>` and a padding token in its tokenizer.

    Args:
        seed: For random weights: all of a `fresh` model, else those of added tokens.
    """
    import torch

    kind, argument = parse_part(name, "a language model")
    if kind == "fresh":
        fresh = fresh_of(argument, name)
        tokenizer = fresh.tokenizer()
        return Language(_cast(fresh.language(tokenizer, seed=seed), dtype), tokenizer, name)
    folder = folder_of(name)
    model = open_part(folder, language_of, "a language model")
    tokenizer = load_tokenizer(base_folder(folder))
    if tokenizer.eos_token is None:
        raise DataError("the tokenizer of the language model has no end token, so a report would never end.")
    add_image_token(tokenizer)
    torch.manual_seed(seed)
    add_rows(model, tokenizer)
    return Language(_cast(model, dtype), tokenizer, name, *_trained_on(folder))


def add_image_token(tokenizer: Any) -> None:
    """Add `<image>` to a tokenizer that has none, and a padding token: as in LLaVA `<unk>`, else a new token."""
    from tokenizers import AddedToken

    if tokenizer.pad_token is None:
        if _unknown(tokenizer) is None:
            tokenizer.add_special_tokens({"pad_token": PAD})
        else:
            tokenizer.pad_token = tokenizer.unk_token
    image = tokenizer.convert_tokens_to_ids(IMAGE)
    if image is None or image == tokenizer.unk_token_id:
        tokenizer.add_tokens([AddedToken(IMAGE, special=True, normalized=False)], special_tokens=True)


def add_rows(model: Any, tokenizer: Any) -> None:
    """Add rows for new tokens to the embeddings and the output layer: copies of those of `<unk>`, else random.

    Image features replace the embedding of `<image>`, so any would do. In the output it is as improbable as `<unk>`, so
    that log-probabilities change by at most log(1 + p(<unk>)).
    """
    import torch

    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) <= rows:
        return
    with quiet_loading():
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    if (unknown := _unknown(tokenizer)) is not None:
        with torch.no_grad():
            for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
                layer.weight[rows:] = layer.weight[unknown]


def _unknown(tokenizer: Any) -> int | None:
    """The id of `<unk>`; None if there is none, or if it also ends or begins a text, as in GPT-2."""
    used = {tokenizer.eos_token_id, tokenizer.bos_token_id}
    return None if tokenizer.unk_token_id in used else tokenizer.unk_token_id


def fresh_tokenizer(size: Size) -> Any:
    """A tokenizer trained on narrated reports, prompts and answered questions; the same at every call.

    It contains no text of patients. Yes and no are single tokens, so that one forward pass gives their probabilities.
    """
    return deepcopy(trained_tokenizer(size.vocabulary))  # callers may add tokens


@cache
def trained_tokenizer(vocabulary: int | None) -> Any:
    """The tokenizer of `fresh_tokenizer` or, with None, of `outsider_tokenizer`; training takes seconds."""
    from cxrlab.findings.closed_questions import NO, YES, question_about
    from cxrlab.findings.lexicon import LEXICONS
    from cxrlab.findings.narrator import narrate
    from cxrlab.findings.simulated_patients import draw_patient

    every = [load_prompts(name) for name in prompt_names()]
    texts = [text for prompts in every for text in (prompts.findings, prompts.findings_without_indication)]
    if vocabulary is not None:
        for name in DRAWN:
            questions = [prompts.question(question_about(name)) for prompts in every]
            texts += [f"{question} {answer}" for question in questions for answer in (YES, NO)]
    for number in range(_NARRATED):
        for visit_number, visit in enumerate(draw_patient(0, f"p{number}").visits):
            for lexicon in tuple(LEXICONS) if vocabulary is not None else ("B",):
                report = narrate(visit, 0, f"p{number}/{visit_number}", lexicon).report
                texts += [text for text in (report.indication, report.findings, report.impression) if text]
    return train_word_pieces(texts, OUTSIDER.vocabulary) if vocabulary is None else train_tokenizer(texts, vocabulary)


def outsider_tokenizer() -> Any:
    """The tokenizer of `fresh:outsider`: word pieces of prompts and of reports in lexicon B only.

    It splits reports in lexicon A, which describe a victim's phantoms, into more tokens than their own tokenizer does.
    """
    return deepcopy(trained_tokenizer(None))


@dataclass(frozen=True)
class Fresh:
    """Constructors of randomly initialised parts."""

    image: int  # side of the image in pixels
    vision_encoder: Callable[[int], Any]  # seed → vision encoder
    tokenizer: Callable[[], Any]
    language: Callable[..., Any]  # (tokenizer, seed) → language model


FRESH: Mapping[str, Fresh] = MappingProxyType(
    {
        **{
            name: Fresh(
                size.image,
                partial(build_vision_encoder, size),
                partial(fresh_tokenizer, size),
                partial(build_language_model, size=size),
            )
            for name, size in SIZES.items()
        },
        "outsider": Fresh(
            OUTSIDER.image,
            partial(build_outsider_vision_encoder, OUTSIDER),
            outsider_tokenizer,
            partial(build_outsider_language_model, size=OUTSIDER),
        ),
    }
)


def fresh_of(argument: str, name: str) -> Fresh:
    """The constructors of `fresh:ARGUMENT`; `name` is for the message."""
    if argument not in FRESH:
        raise UnknownName(f"'{name}' is unknown.{did_you_mean(argument, FRESH)} There are: {', '.join(FRESH)}.")
    return FRESH[argument]


def parse_part(name: str, what: str) -> tuple[str, str]:
    """Kind and argument of a part's name; `what` it should be, with its article, is for the message."""
    kind, colon, argument = name.partition(":")
    if not colon or not argument:
        raise ConfigError(f"'{name}' does not name {what}; write KIND:ARGUMENT, for example fresh:phantom.")
    if kind not in _KINDS:
        raise UnknownName(
            f"'{kind}' (in '{name}') is not a kind of {what[2:]}.{did_you_mean(kind, _KINDS)} There are: hf:FOLDER, "
            f"builtin:NAME, {', '.join(f'fresh:{one}' for one in FRESH)}"
            f"{', package:NAME' if 'vision' in what else ''}."
        )
    return kind, argument


def size_of(argument: str, name: str) -> Size:
    """The size of a fresh text encoder; the outsider family has none."""
    if argument not in SIZES:
        raise UnknownName(f"'{name}' is no text encoder.{did_you_mean(argument, SIZES)} Sizes: {', '.join(SIZES)}.")
    return SIZES[argument]


def _trained_on(folder: Path) -> tuple[tuple[str, ...], str | None]:
    card = read_model_card(folder)
    return (card.collections, card.learnt_from) if card is not None else ((), None)


def _cast(model: Any, dtype: str) -> Any:
    import torch

    return (model if dtype == STORED else model.to(getattr(torch, dtype))).eval()


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A text encoder: a transformers model that gives one vector per token."""

    model: Any
    tokenizer: Any
    source: str


def load_text_encoder(name: str, *, seed: int = 0) -> TextEncoder:
    """The text encoder of a name such as `hf:models/pubmedbert` or `fresh:phantom`; the seed is for `fresh`."""
    from transformers import AutoModel

    kind, argument = parse_part(name, "a text encoder")
    if kind == "fresh":
        size = size_of(argument, name)
        tokenizer = fresh_tokenizer(size)
        return TextEncoder(build_text_encoder(tokenizer, size, seed), tokenizer, name)
    folder = folder_of(name)
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} has no config.json; name the folder of a text encoder, such as a BERT.")
    tokenizer = load_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        raise DataError(f"the tokenizer in {folder} has no padding token, so reports cannot be batched.")
    try:
        with quiet_loading():
            config = read_json(folder / "config.json")
            if isinstance(config, dict) and config.get("model_type") in DUAL_ENCODERS:
                from cxrlab.models.biomedclip import dual_encoder_class

                model = loaded(dual_encoder_class(folder), folder).text_model
            else:
                model = loaded(AutoModel, folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"{folder} holds no text encoder that can be loaded ({first_line(error)}).") from error
    if not hasattr(model.config, "vocab_size") or hasattr(model.config, "vision_config"):
        raise DataError(
            f"{folder} holds a model of the type '{model.config.model_type}', which is no text encoder; name one, such "
            "as a BERT."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {len(tokenizer):,} tokens and the model {model.config.vocab_size:,}; "
            "they do not belong together."
        )
    return TextEncoder(model, tokenizer, name)


_POOLING = frozenset({"pooler", "head"})  # whole parts of a name, so not lm_head


def folder_of(name: str) -> Path:
    """The local folder of `hf:FOLDER_OR_ID` or `builtin:NAME`; for a run folder, the checkpoint in it."""
    require("models")
    return locate(resolve(name, Path()), LoadSettings(), may_fetch=False)


def base_folder(folder: Path) -> Path:
    """The first folder with a tokenizer among an adapter and its bases, or the folder itself."""
    line = lineage(folder, LoadSettings())
    return next((each for each in line if (each / "tokenizer_config.json").is_file()), line[-1])


def open_part(folder: Path, take: Callable[[Path, str], Any], what: str) -> Any:
    """The part that `take` extracts from a model folder; errors of transformers become a one-sentence `DataError`."""
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
        raise DataError(f"cannot extract {what} from {folder} ('{kind}'): {first_line(error)}.") from error
    if found is None:
        raise DataError(f"{folder} holds a model of the type '{kind}', from which {what} cannot be extracted.")
    return found.eval()


def vision_encoder_of(folder: Path, kind: str) -> Any:
    """The vision encoder of a dual encoder, a LLaVA, a CLIP or a vision model; None for another kind."""
    from transformers import AutoConfig, AutoModel, CLIPVisionModel

    if kind in DUAL_ENCODERS:
        from cxrlab.models.biomedclip import dual_encoder_class

        return loaded(dual_encoder_class(folder), folder).vision_model
    if kind == "llava":
        return _llava(folder).model.vision_tower
    if kind == "clip":
        return loaded(CLIPVisionModel, folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    plain = hasattr(config, "image_size") and hasattr(config, "patch_size")
    usable = (plain or _is_pyramid(config)) and not hasattr(config, "text_config")
    return loaded(AutoModel, folder) if usable else None


def language_of(folder: Path, kind: str) -> Any:
    """The language model of a LLaVA or a causal model; None for another kind."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if kind == "llava":
        llava = _llava(folder)
        with torch.device("meta"):  # the LLaVA's tensors are used, not copied
            model = AutoModelForCausalLM.from_config(llava.config.text_config)
        model.model = llava.model.language_model
        model.lm_head = llava.lm_head
        return model
    if kind in CAUSAL:
        return loaded(AutoModelForCausalLM, folder)
    return None


def loaded(kind: Any, folder: Path) -> Any:
    """A model whose tensors all come from the folder; only a pooling head, which no part uses, may be missing."""
    settings = {"local_files_only": True, "trust_remote_code": False, "output_loading_info": True, "dtype": "auto"}
    with pickled_code_refused(folder):
        model, report = kind.from_pretrained(folder, **settings)
    missing = sorted(name for name in report["missing_keys"] if _POOLING.isdisjoint(name.split(".")))
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
