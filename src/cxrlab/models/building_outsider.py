"""A second family of parts from nothing, for a report model that is kin to no other one here.

Nothing of `building.py` but the way of putting parts together is shared: a CLIP-shaped encoder with smaller patches, a
Qwen2-shaped language model with fewer and wider layers whose heads share keys and values, and word pieces in place of
byte pairs. Whoever copies a model with this one has neither its architecture nor its vocabulary. The encoder keeps a
class token in front of its patches, as `building.assemble_llava` drops one. Weights are random until somebody trains
them; a seed decides them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.building import BOS, EOS, IMAGE, PAD, UNKNOWN, for_llava

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
