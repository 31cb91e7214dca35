"""Every strategy over every family: beams reorder each family's own cache, positions and images."""

from __future__ import annotations

import pytest
import torch
from tiny_families import FAMILIES, save_tiny

from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.beam_search import DiverseBeamSearch
from cxrlab.models.hf.decoding_steps import Limits
from cxrlab.models.hf.generation import decode, image_tokens
from cxrlab.models.hf.model import HfModel

REASONS = [None, "fall from a ladder two days ago"]
STRATEGIES = (
    Decoding(strategy="sample", answers=2, max_new_tokens=5),
    Decoding(strategy="diverse", beams=6, groups=3, diversity_penalty=0.2, answers=3, max_new_tokens=5),
)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HfModel:
    return HfModel.load(str(save_tiny(request.param, tmp_path_factory.mktemp("family") / request.param)))


def images() -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.rand(size, generator=source) for size in ((48, 40), (30, 52))]


@pytest.mark.parametrize("decoding", STRATEGIES, ids=lambda one: one.strategy)
def test_a_batch_is_its_images_one_by_one(model: HfModel, decoding: Decoding) -> None:
    together = model.answers(images(), REASONS, decoding)
    alone = [model.answers([image], [reason], decoding)[0] for image, reason in zip(images(), REASONS, strict=True)]
    assert [[one.text for one in row] for row in together] == [[one.text for one in row] for row in alone]
    assert all(len(row) == decoding.answers for row in together)


def test_one_group_is_the_beam_search_of_transformers(model: HfModel) -> None:
    """On one image: the same tokens as the family's own `generate` finds, in the same order."""
    with torch.inference_mode():
        encoded = model._encoder.encode([images()[0][None]], [model.prompts.ask(None)], side="left")
        inputs, banned = dict(encoded.inputs), image_tokens(model.model)
        theirs = model.model.generate(
            **inputs, num_beams=3, num_return_sequences=3, max_new_tokens=5, do_sample=False, eos_token_id=model.ends,
            suppress_tokens=banned,
        )  # fmt: skip
        search = DiverseBeamSearch(Decoding(strategy="beam", beams=3, answers=3))
        (ours,) = decode(model.model, [inputs], search, rows=3, limits=Limits(model.ends, banned, 5))
    written = theirs[:, inputs["input_ids"].shape[1] :].tolist()
    assert [list(one.tokens) for one in ours] == [
        tokens[: len(one.tokens)] for one, tokens in zip(ours, written, strict=True)
    ]
