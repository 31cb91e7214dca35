"""Models from nothing: tokenizer, vision encoder, language model, and how they are put together.

The parts are those of LLaVA-Rad in every size: a DINOv2-shaped vision encoder, a Llama-shaped language model
and a two-layer projector between them; beside the vision encoder a BERT-shaped text encoder for contrastive
training. `PHANTOM` is the size that ships with the package, `TINY` the one of the tests. Weights are random until
somebody trains them; a seed decides them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import ConfigError

PAD, BOS, EOS, IMAGE, UNKNOWN = "<pad>", "<s>", "</s>", "<image>", "<unk>"
FEATURE_LAYER = -2  # of the vision encoder: its last but one layer, as in LLaVA
# Of OpenAI's CLIP, which BiomedCLIP-CXR and LLaVA-Rad keep.
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Size:
    """How large the parts are.

    Args:
        image: Side of the image in pixels.
        patch: Side of a patch in pixels; it divides `image`.
        vision_encoder: Layers of the vision encoder.
        language: Layers of the language model.
        text: Layers of the text encoder.
        width: Numbers a token, in all three.
        head: Numbers an attention head; it divides `width`.
        shared: Numbers of the space that images and reports share.
        vocabulary: Most tokens of the tokenizer.
        context: Most tokens of the language model, those of the image included.
    """

    image: int = 128
    patch: int = 16
    vision_encoder: int = 6
    language: int = 6
    text: int = 3
    width: int = 192
    head: int = 32
    shared: int = 192
    vocabulary: int = 2048
    context: int = 1024

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
    """A byte-level BPE tokenizer with the special tokens of a LLaVA, that puts `<s>` in front of every text."""
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
    """A trained tokenizer as transformers has it: `<s>` in front of every text, and the special tokens of a LLaVA."""
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
    """A vision encoder with random weights: `Dinov2Model` with a class token in front of its patches."""
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
    """A language model with random weights: `LlamaForCausalLM` whose input and output embeddings are one."""
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
    """A text encoder with random weights: `BertModel` that reads a text off its first token."""
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


def build_image_processor(image: int) -> Any:
    """Images squeezed to a square of this side, scaled by CLIP's mean and deviation; nothing is cropped away."""
    from transformers import CLIPImageProcessorPil

    return CLIPImageProcessorPil(
        size={"height": image, "width": image},
        do_center_crop=False,
        resample=2,
        image_mean=list(MEAN),
        image_std=list(STD),
    )


def build_dual_encoder(vision_encoder: Any, text_encoder: Any, shared: int, seed: int) -> Any:
    """VisionEncoder and text encoder with a projection each into one space: `VisionTextDualEncoderModel`."""
    from transformers import VisionTextDualEncoderConfig, VisionTextDualEncoderModel

    _seed(seed)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        vision_encoder.config, text_encoder.config, projection_dim=shared
    )
    return VisionTextDualEncoderModel(config=config, vision_model=vision_encoder, text_model=text_encoder)


def assemble_llava(
    vision_encoder: Any, language_model: Any, tokenizer: Any, image_processor: Any, seed: int
) -> tuple[Any, Any]:
    """A LLaVA of trained parts with a new projector between them: (model, processor).

    The parts' own tensors are used, not copied. The tokenizer must hold `<image>`.
    """
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
    from transformers.models.llava.modeling_llava import LlavaMultiModalProjector

    image = tokenizer.convert_tokens_to_ids(IMAGE)
    if image is None or image == tokenizer.unk_token_id:
        raise ConfigError(f"the tokenizer has no token {IMAGE}; add it before the model is put together.")
    inner = getattr(language_model, "model", None)
    if not hasattr(inner, "embed_tokens") or not hasattr(language_model, "lm_head"):
        raise ConfigError(
            f"a language model of the type '{language_model.config.model_type}' cannot stand in a LLaVA; it takes one "
            "with the parts of a Llama (model.embed_tokens, lm_head), such as Mistral, Qwen2, Phi or Gemma."
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
    # On no device: at 7 billion parameters, drawing weights only to replace them takes minutes and 28 GB.
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
    """Weights are drawn from torch's one global generator; it is seeded right before each drawing."""
    import torch

    torch.manual_seed(seed)


_LONGEST_WORD = 1000  # bytes; a longer one is an unknown token, since looking for pieces takes the square of it


@dataclass(frozen=True)
class OutsiderSize:
    """How large the parts of the second family are.

    Args:
        image: Side of the image in pixels.
        patch: Side of a patch in pixels; it divides `image`.
        vision_encoder: Layers of the vision encoder.
        vision_encoder_width: Numbers a patch; a multiple of `head`.
        language: Layers of the language model.
        language_width: Numbers a token; a multiple of `head`.
        inner: Numbers between the two layers of the language model's perceptrons.
        head: Numbers an attention head, in both.
        sharing: Heads of the language model that share keys and values; it divides their number.
        vocabulary: Most tokens of the tokenizer.
        context: Most tokens of the language model, those of the image included.
    """

    image: int = 128
    patch: int = 8
    vision_encoder: int = 6
    vision_encoder_width: int = 160
    language: int = 5
    language_width: int = 256
    inner: int = 512
    head: int = 32
    sharing: int = 4
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
    """A tokenizer that takes the longest piece it knows, again and again; any text comes back as it was.

    The pieces are spelled in bytes, so that no character is unknown (a word of more than 1000 bytes is), and found the
    same way at every call: the trainer of unigram tokenizers finds others each time, with which a stopped training
    could not go on. `<s>` stands in front of every text.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    # Pieces inside a word bear no mark: with one, a byte that no text has inside a word would be unknown there.
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
    """A vision encoder with random weights: `CLIPVisionModel` with a class token in front of its patches."""
    import torch
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=size.vision_encoder_width,
        intermediate_size=4 * size.vision_encoder_width,
        num_hidden_layers=size.vision_encoder,
        num_attention_heads=size.vision_encoder_width // size.head,
        image_size=size.image,
        patch_size=size.patch,
    )
    torch.manual_seed(seed)
    return CLIPVisionModel(config)


def build_outsider_language_model(tokenizer: Any, size: OutsiderSize, seed: int) -> Any:
    """A language model with random weights: `Qwen2ForCausalLM` whose input and output embeddings are one."""
    import torch
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
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(config)
