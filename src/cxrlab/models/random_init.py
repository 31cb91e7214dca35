"""Randomly initialised models and newly trained tokenizers: the parts of a LLaVA, and their assembly.

The architecture is LLaVA-Rad's in every size: a DINOv2 vision encoder, a Llama language model and a two-layer
projector; also a BERT text encoder for contrastive training. `PHANTOM` is the size of the shipped models, `TINY` that of
tests. `OUTSIDER` is another family: a CLIP vision encoder and a Qwen2 language model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import ConfigError

PAD, BOS, EOS, IMAGE, UNKNOWN = "<pad>", "<s>", "</s>", "<image>", "<unk>"
FEATURE_LAYER = -2  # layer of the vision encoder that is read, as in LLaVA
# Normalisation of OpenAI's CLIP, also used by BiomedCLIP-CXR and LLaVA-Rad.
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Size:
    """Sizes of the parts."""

    image: int = 128  # side of the image in pixels
    patch: int = 16  # side of a patch in pixels; it divides `image`
    vision_encoder: int = 6  # number of layers, as for `language` and `text`
    language: int = 6
    text: int = 3
    width: int = 192  # hidden size of all three
    head: int = 32  # width of an attention head; it divides `width`
    shared: int = 192  # dimension of the space that images and reports share
    vocabulary: int = 2048
    context: int = 1024  # most tokens of the language model, those of the image included

    def __post_init__(self) -> None:
        if self.image % self.patch:
            raise ConfigError(f"patch={self.patch} does not divide image={self.image}.")
        if self.width % self.head:
            raise ConfigError(f"head={self.head} does not divide width={self.width}.")

    @property
    def image_tokens(self) -> int:
        """Patches of an image."""
        return (self.image // self.patch) ** 2


PHANTOM = Size()
TINY = Size(
    image=32, patch=16, vision_encoder=2, language=2, text=2, width=32, head=16, shared=16, vocabulary=512, context=512
)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """Train a byte-level BPE tokenizer with the special tokens of a LLaVA, which puts `<s>` before every text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, EOS, UNKNOWN, IMAGE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return for_llava(bpe)


def for_llava(trained: Any) -> Any:
    """A trained tokenizer for transformers, with `<s>` before every text and the special tokens of a LLaVA."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    trained.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, trained.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=trained,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        extra_special_tokens={"image_token": IMAGE},
        padding_side="right",
    )


def build_vision_encoder(size: Size, seed: int) -> Any:
    """A `Dinov2Model` with random weights."""
    from transformers import Dinov2Config, Dinov2Model

    _seed(seed)
    return Dinov2Model(
        Dinov2Config(
            hidden_size=size.width,
            num_hidden_layers=size.vision_encoder,
            num_attention_heads=size.width // size.head,
            mlp_ratio=4,
            image_size=size.image,
            patch_size=size.patch,
            layerscale_value=1.0,
            use_mask_token=False,
        )
    )


def build_language_model(tokenizer: Any, size: Size, seed: int) -> Any:
    """A `LlamaForCausalLM` with random weights and tied embeddings."""
    from transformers import LlamaConfig, LlamaForCausalLM

    _seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=size.width,
            intermediate_size=8 * size.width // 3,
            num_hidden_layers=size.language,
            num_attention_heads=size.width // size.head,
            max_position_embeddings=size.context,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def build_text_encoder(tokenizer: Any, size: Size, seed: int) -> Any:
    """A `BertModel` with random weights."""
    from transformers import BertConfig, BertModel

    _seed(seed)
    return BertModel(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=size.width,
            num_hidden_layers=size.text,
            num_attention_heads=size.width // size.head,
            intermediate_size=4 * size.width,
            max_position_embeddings=size.context,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def build_image_processor(image: int, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Any:
    """An image processor that squashes images to a square of this side and normalises them, by default as CLIP does."""
    from transformers import CLIPImageProcessorPil

    return CLIPImageProcessorPil(
        size={"height": image, "width": image},
        do_center_crop=False,
        resample=2,
        image_mean=list(mean),
        image_std=list(std),
    )


def build_dual_encoder(vision_encoder: Any, text_encoder: Any, shared: int, seed: int) -> Any:
    """A `VisionTextDualEncoderModel` of both encoders, with random projections into the shared space."""
    from transformers import VisionTextDualEncoderConfig, VisionTextDualEncoderModel

    _seed(seed)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        vision_encoder.config, text_encoder.config, projection_dim=shared
    )
    return VisionTextDualEncoderModel(config=config, vision_model=vision_encoder, text_model=text_encoder)


def assemble_llava(
    vision_encoder: Any, language_model: Any, tokenizer: Any, image_processor: Any, seed: int
) -> tuple[Any, Any]:
    """A LLaVA of existing parts, whose tensors are shared, with a random projector: (model, processor)."""
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
    from transformers.models.llava.modeling_llava import LlavaMultiModalProjector

    image = tokenizer.convert_tokens_to_ids(IMAGE)
    if image is None or image == tokenizer.unk_token_id:
        raise ConfigError(f"the tokenizer has no token {IMAGE}; add it before the model is assembled.")
    inner = getattr(language_model, "model", None)
    if not hasattr(inner, "embed_tokens") or not hasattr(language_model, "lm_head"):
        raise ConfigError(
            f"a language model of the type '{language_model.config.model_type}' cannot be part of a LLaVA; use one with "
            "the parts of a Llama (model.embed_tokens, lm_head), such as Mistral, Qwen2, Phi or Gemma."
        )
    config = LlavaConfig(
        vision_config=vision_encoder.config,
        text_config=language_model.config,
        image_token_index=image,
        vision_feature_layer=FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=bool(language_model.config.tie_word_embeddings),
        image_seq_length=(vision_encoder.config.image_size // vision_encoder.config.patch_size) ** 2,
    )
    # On no device: initialising 7 billion parameters only to replace them takes minutes and 28 GB.
    with torch.device("meta"):
        model = LlavaForConditionalGeneration(config)
    _seed(seed)
    model.model.multi_modal_projector = LlavaMultiModalProjector(config)
    model.model.vision_tower = vision_encoder
    model.model.language_model = language_model.model
    model.lm_head = language_model.lm_head
    processor = LlavaProcessor(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=vision_encoder.config.patch_size,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=IMAGE,
    )
    return model, processor


def _seed(seed: int) -> None:
    """Seed torch's global generator, from which weights are initialised."""
    import torch

    torch.manual_seed(seed)


_LONGEST_WORD = 1000  # bytes; a longer one is an unknown token, since the search for pieces takes quadratic time


@dataclass(frozen=True)
class OutsiderSize:
    """Sizes of the parts of the outsider family; see `Size`."""

    image: int = 128
    patch: int = 8
    vision_encoder: int = 6
    vision_encoder_width: int = 160  # hidden size; a multiple of `head`, like `language_width`
    language: int = 5
    language_width: int = 256
    inner: int = 512  # width of the language model's MLPs
    head: int = 32  # width of an attention head, in both
    sharing: int = 4  # heads of the language model that share keys and values; it divides their number
    vocabulary: int = 1536
    context: int = 1024

    def __post_init__(self) -> None:
        if self.image % self.patch:
            raise ConfigError(f"patch={self.patch} does not divide image={self.image}.")
        for name in ("vision_encoder_width", "language_width"):
            if getattr(self, name) % self.head:
                raise ConfigError(f"head={self.head} does not divide {name}={getattr(self, name)}.")
        if (self.language_width // self.head) % self.sharing:
            raise ConfigError(f"sharing={self.sharing} does not divide {self.language_width // self.head} heads.")

    @property
    def image_tokens(self) -> int:
        """Patches of an image."""
        return (self.image // self.patch) ** 2


OUTSIDER = OutsiderSize()


def train_word_pieces(texts: Iterable[str], vocabulary: int) -> Any:
    """Train a byte-level WordPiece tokenizer, which decodes every text as it was; `<s>` stands before every text.

    Its training is deterministic, unlike that of unigram tokenizers, so that an interrupted training can continue.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    # Without a prefix for pieces inside a word: with one, a byte not seen there would be unknown.
    pieces = Tokenizer(
        models.WordPiece(unk_token=UNKNOWN, continuing_subword_prefix="", max_input_chars_per_word=_LONGEST_WORD)
    )
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, EOS, UNKNOWN, IMAGE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        continuing_subword_prefix="",
        show_progress=False,
    )
    pieces.train_from_iterator(texts, trainer)
    return for_llava(pieces)


def build_outsider_vision_encoder(size: OutsiderSize, seed: int) -> Any:
    """A `CLIPVisionModel` with random weights."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=size.vision_encoder_width,
        intermediate_size=4 * size.vision_encoder_width,
        num_hidden_layers=size.vision_encoder,
        num_attention_heads=size.vision_encoder_width // size.head,
        image_size=size.image,
        patch_size=size.patch,
    )
    _seed(seed)
    return CLIPVisionModel(config)


def build_outsider_language_model(tokenizer: Any, size: OutsiderSize, seed: int) -> Any:
    """A `Qwen2ForCausalLM` with random weights and tied embeddings."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    heads = size.language_width // size.head
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=size.language_width,
        intermediate_size=size.inner,
        num_hidden_layers=size.language,
        num_attention_heads=heads,
        num_key_value_heads=heads // size.sharing,
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    _seed(seed)
    return Qwen2ForCausalLM(config)
