from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.decoding_steps import GrowingSteps, Limits, Prompts


class Counter:
    """A model of three words with a memory that it reorders itself; it always goes on with the next word."""

    config = SimpleNamespace(is_encoder_decoder=False)

    def __init__(self) -> None:
        self.asked: list[tuple[int, int | None]] = []

    def prepare_inputs_for_generation(self, ids: torch.Tensor, **given: Any) -> dict[str, Any]:
        self.asked.append((ids.shape[1], given["next_sequence_length"]))
        return {"ids": ids}

    def __call__(self, ids: torch.Tensor, return_dict: bool) -> Any:
        logits = torch.nn.functional.one_hot((ids + 1) % 3, 3).to(torch.bfloat16)
        return SimpleNamespace(logits=20 * logits)

    def _update_model_kwargs_for_generation(self, outputs: Any, kwargs: dict[str, Any], **_: Any) -> dict[str, Any]:
        return kwargs

    def _reorder_cache(self, cache: Any, rows: torch.Tensor) -> Any:
        return cache[rows]


def steps(model: Any, **inputs: Any) -> GrowingSteps:
    prompts = Prompts.read(model, torch.tensor([[0, 1], [0, 2]]), {"use_cache": True, **inputs})
    return GrowingSteps(prompts, Limits(ends=[2], banned=[1], longest=4))


def test_rows_go_on_from_the_row_they_continue_with_its_memory() -> None:
    model = Counter()
    taken = steps(model, past_key_values=torch.tensor([10, 20]))
    first = taken.log_probabilities()
    assert first.dtype == torch.float32 and first.argmax(1).tolist() == [2, 0]
    assert torch.isinf(first[:, 1]).all(), "what is never written"
    assert taken.is_end(torch.tensor([2, 0])).tolist() == [True, False]
    taken.append(torch.tensor([0, 2]), rows=torch.tensor([1, 1]))
    assert taken._ids.tolist() == [[0, 2, 0], [0, 2, 2]] and taken._inputs["past_key_values"].tolist() == [20, 20]
    taken.log_probabilities()
    assert model.asked == [(2, None), (3, 1)], "the whole prompt once, then one token at a time"


def test_the_share_of_what_is_never_written_is_not_given_to_the_rest() -> None:
    """So that a report has the same probability written as scored."""
    found = steps(Counter()).log_probabilities()
    assert float(found[0, 2]) == pytest.approx(-2 * torch.exp(torch.tensor(-20.0)).item(), abs=1e-6)
    assert float(found[1, 2]) == pytest.approx(-20, abs=1e-3)


def test_a_memory_that_cannot_be_shared_is_refused_with_the_remedy() -> None:
    class Alone(Counter):
        _reorder_cache = property()  # hasattr is False

    with pytest.raises(ConfigError, match="Alone .* strategy=greedy or sample"):
        steps(Alone(), past_key_values=object()).append(torch.tensor([0, 0]), torch.tensor([0, 0]))


def test_a_model_without_a_memory_reads_everything_again() -> None:
    class Forgetful(Counter):
        _reorder_cache = property()

    model = Forgetful()
    taken = steps(model, use_cache=False)
    taken.log_probabilities()
    taken.append(torch.tensor([0, 0]), torch.tensor([1, 0]))
    taken.log_probabilities()
    assert model.asked == [(2, None), (3, None)]
