"""A LLaVA-Rad trained here and the published one, converted: the same tokens for the same sample."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from published_checkpoints import PATCH, llava_rad_folder, open_clip_folder, vicuna_folder
from training_fixtures import phantoms

from cxrlab.data.corpus import load_corpus
from cxrlab.models.convert import ConvertConfig, convert
from cxrlab.models.hf.model import HfModel
from cxrlab.training.align_finetune import align, finetune
from cxrlab.training.config import AlignConfig, FinetuneConfig, Optimisation
from cxrlab.training.report_dataset import tokenise

pytestmark = pytest.mark.slow

FAST = Optimisation(batch_size=2, steps=1, max_length=512)


@pytest.mark.parametrize("space", ["first", "always"])
def test_training_and_inference_use_the_tokens_of_the_published_model(space: str, tmp_path: Path) -> None:
    """Stages 2 and 3 from parts, with the conversation of configs/training: ids, `<image>` and padding included."""
    base, data = vicuna_folder(tmp_path / "vicuna", space), phantoms(tmp_path / "phantom", n=8)
    convert("llava-rad", llava_rad_folder(tmp_path / "published"), ConvertConfig(base=base), tmp_path / "converted")
    convert("open-clip", open_clip_folder(tmp_path / "clip"), ConvertConfig(), tmp_path / "encoder")
    parts = {"encoder": f"hf:{tmp_path / 'encoder'}", "language_model": f"hf:{base}"}
    align(AlignConfig(data, **parts, optimisation=FAST), tmp_path / "align")
    start = str(tmp_path / "align")
    finetune(
        FinetuneConfig(data, start=start, lora_rank=4, conversation="vicuna-v1", optimisation=FAST), tmp_path / "tuned"
    )
    converted, plain, tuned = (
        HfModel.load(str(tmp_path / name)) for name in ("converted", "align/checkpoint", "tuned/checkpoint")
    )
    study = next(load_corpus(data).studies())
    assert study.sections is not None and study.sections.findings is not None
    prompts = [tuned.prompts.ask(study.sections.indication), tuned.prompts.ask(None), "typed </s> and <image>"]
    reports = [study.sections.findings, "The lungs are clear.", " \n"]
    image = torch.rand(3 * PATCH, 3 * PATCH, generator=torch.Generator().manual_seed(0))
    ours, theirs = (
        (
            tokenise(one.processor, one.model.config.image_token_id, prompts, reports).ids.tolist(),
            one.encode([image] * 3, prompts, reports).ids.tolist(),
            one.ends,
            one.model.get_input_embeddings().weight.shape,
        )
        for one in (tuned, converted)
    )
    assert ours == theirs
    assert tuned.card is not None and tuned.card.extra["conversation"] == "vicuna-v1"
    # Stage 2 as in LLaVA: the image, then the report. LLaVA ends it with a line break, here it is the end token.
    words, report = plain.tokenizer, "no effusion seen"
    mark = words.convert_tokens_to_ids("<image>")
    expected = [words.bos_token_id, mark, *words(report)["input_ids"][1:], words.eos_token_id]
    assert tokenise(plain.processor, mark, [""], [report]).ids.tolist() == expected
