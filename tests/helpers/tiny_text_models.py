"""Tiny encoders and tokenizers in the layout of the real ones, with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = "no acute edema effusion the lungs are clear small left right pleural heart is normal . , ##s".split()
TEXTS = ["the lungs are clear .", "small left pleural effusion", "heart is normal , no edema", "no edemas"]


def tiny_config(**changes: Any) -> dict[str, Any]:
    """Sizes of a BERT that runs in a millisecond; weights large enough that words differ."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    return {**sizes, "max_position_embeddings": 40, "initializer_range": 0.5, **changes}


def bert_tokenizer(folder: Path) -> Any:
    from transformers import BertTokenizer

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    tokenizer.save_pretrained(folder)
    return tokenizer


def bert_folder(folder: Path, **changes: Any) -> Path:
    """A BERT with its tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = bert_tokenizer(folder)
    BertModel(BertConfig(vocab_size=len(tokenizer), **tiny_config(**changes))).save_pretrained(folder)
    return folder


def roberta_folder(folder: Path) -> Path:
    """A RoBERTa with a byte-level tokenizer; its positions begin after the padding's."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    folder.mkdir()
    bytes_pairs = ByteLevelBPETokenizer()
    bytes_pairs.train_from_iterator(TEXTS, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    bytes_pairs.save_model(str(folder))
    merges = [tuple(line.split()) for line in (folder / "merges.txt").read_text("utf-8").splitlines()[1:]]
    tokenizer = RobertaTokenizer(vocab=json.loads((folder / "vocab.json").read_text("utf-8")), merges=merges)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    RobertaModel(RobertaConfig(vocab_size=len(tokenizer), **tiny_config(), **ids)).save_pretrained(folder)
    return folder


def chexbert_weights(folder: Path, sizes: dict[str, Any] | None = None) -> dict[str, Any]:
    """CheXbert's tensors under the published names with random numbers, and the folder with config and tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    config = BertConfig(vocab_size=len(bert_tokenizer(folder)), **(sizes or tiny_config()))
    config.save_pretrained(folder)
    state = {f"module.bert.{key}": value for key, value in BertModel(config).state_dict().items()}
    # Saved with the weights by the version of transformers that the authors used.
    state["module.bert.embeddings.position_ids"] = torch.arange(config.max_position_embeddings)[None]
    for head in range(14):
        classes = 2 if head == 13 else 4
        state[f"module.linear_heads.{head}.weight"] = torch.randn(classes, config.hidden_size)
        state[f"module.linear_heads.{head}.bias"] = torch.zeros(classes)
    return state


def save_chexbert(path: Path, state: dict[str, Any]) -> Path:
    """chexbert.pth in its published layout."""
    import torch

    torch.save({"epoch": 8, "model_state_dict": state, "optimizer_state_dict": {"state": {}, "param_groups": []}}, path)
    return path
