"""The losses against TRL's own code: the same log-probabilities of tokens through both."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cxrlab.core.registry import load_reference
from cxrlab.preference import losses
from cxrlab.preference.config import LossSettings
from cxrlab.preference.losses import LogProbabilities

DPOTrainer = pytest.importorskip("trl").DPOTrainer
KTOTrainer = pytest.importorskip("trl").KTOTrainer

PROMPT, LONGEST = 3, 11  # tokens


class Speaker(torch.nn.Module):
    """Finds the tokens of a batch as likely as it was set to, whatever the batch says."""

    is_gradient_checkpointing = False

    def __init__(self, **log_probs: Tensor) -> None:
        super().__init__()
        self.log_probs = log_probs

    def forward(self, input_ids: Tensor, labels: Tensor, **_: Any) -> Any:
        # TRL hands over what is to be scored by `labels`; what is not counts for nothing, as in its own model.
        kind = "strange" if "strange" in self.log_probs and bool(input_ids[0, 0] == 9) else "own"
        inside = labels[:, 1:] != -100
        numbers = torch.where(inside, self.log_probs[kind], torch.zeros(()))
        nothing = torch.zeros_like(numbers)
        return SimpleNamespace(log_probs=numbers, entropy=nothing, mean_logits=nothing, is_top1=inside)


def trainer(reference: Speaker, **settings: Any) -> Any:
    """What TRL's loss asks of its trainer, and no more."""
    alone = SimpleNamespace(device=torch.device("cpu"), gather=lambda x: x, gather_for_metrics=lambda x: x)
    return SimpleNamespace(
        model=reference,
        ref_model=reference,
        accelerator=alone,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        aux_loss_enabled=False,
        precompute_ref_logps=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **settings,
    )


def tokens_of(rows: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """How many tokens each report has, and where they stand behind the prompt."""
    counts = torch.randint(1, LONGEST + 1, (rows,), generator=rng)
    place = torch.arange(PROMPT + LONGEST)
    return counts, ((place >= PROMPT) & (place < PROMPT + counts[:, None])).long()


def drawn(rows: int, rng: torch.Generator) -> Tensor:
    """Log-probabilities of tokens, those of padding among them, from nearly 0 down to about -20."""
    return -torch.randn(rows, PROMPT + LONGEST - 1, generator=rng).mul(2).exp().clamp(max=20)


def sums(each: Tensor, mask: Tensor) -> Tensor:
    return (each * mask[:, 1:]).sum(1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"loss_types": ["sigmoid"], "beta": 0.1}, LossSettings("dpo")),
        ({"loss_types": ["sigmoid"], "beta": 0.7}, LossSettings("dpo", beta=0.7)),
        ({"loss_types": ["ipo"], "beta": 0.1}, LossSettings("ipo")),
        ({"loss_types": ["ipo"], "beta": 0.4}, LossSettings("ipo", beta=0.4)),
        ({"loss_types": ["robust"], "beta": 0.1, "label_smoothing": 0.1}, LossSettings("robust")),
        ({"loss_types": ["robust"], "beta": 0.3, "label_smoothing": 0.4}, LossSettings("robust", 0.3, flipped=0.4)),
    ],
    ids=lambda value: value.name if isinstance(value, LossSettings) else None,
)
def test_pairs(theirs: dict[str, Any], ours: LossSettings, seed: int) -> None:
    """Six pairs of random lengths; TRL's mean over them and its gradient are ours."""
    rng = torch.Generator().manual_seed(seed)
    counts, mask = tokens_of(12, rng)
    policy, reference = drawn(12, rng).requires_grad_(), drawn(12, rng)
    ids = torch.ones(12, PROMPT + LONGEST, dtype=torch.long)
    fixed = {
        "loss_weights": [1.0], "ld_alpha": None, "f_divergence_type": "reverse_kl", "use_weighting": False,
        "label_smoothing": 0.0,
    }  # fmt: skip
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": mask}
    stand_in = trainer(Speaker(own=reference), **{**fixed, **theirs})
    expected = DPOTrainer._compute_loss(stand_in, Speaker(own=policy), batch, return_outputs=False)
    pairs = LogProbabilities(sums(policy, mask).view(2, -1), counts.view(2, -1), sums(reference, mask).view(2, -1))
    found = load_reference(ours.kind.function)(pairs, ours).mean()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    gradients = [torch.autograd.grad(loss, policy)[0] for loss in (found, expected)]
    assert torch.allclose(*gradients, rtol=1e-5, atol=1e-8) and bool(gradients[0].any())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0], ids=["nearer", "same", "further"])
def test_single_reports(seed: int, shift: float) -> None:
    """KTO: seven reports, good and bad with weights of their own; the drift is cut off at 0 where it is negative."""
    rng = torch.Generator().manual_seed(seed)
    rows, beta, weights = 7, 0.2, (1.5, 0.6)
    ids = torch.ones(rows, PROMPT + LONGEST, dtype=torch.long)
    _, mask = tokens_of(rows, rng)
    _, strange_mask = tokens_of(rows, rng)
    policy, reference = drawn(rows, rng).requires_grad_(), drawn(rows, rng)
    strange = drawn(rows, rng)
    strange_reference = strange + 0.1 * torch.randn(strange.shape, generator=rng) - shift / LONGEST
    good = torch.rand(rows, generator=rng) < 0.5
    good[0], good[1] = True, False
    batch = {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": mask, "label": good,
        "KL_input_ids": 9 * ids, "KL_attention_mask": torch.ones_like(ids), "KL_completion_mask": strange_mask,
    }  # fmt: skip
    stand_in = trainer(
        Speaker(own=reference, strange=strange_reference),
        beta=beta, loss_type="kto", calculate_KL=True, desirable_weight=weights[0], undesirable_weight=weights[1],
    )  # fmt: skip
    stand_in._compute_kl_logps = lambda model, given: KTOTrainer._compute_kl_logps(stand_in, model, given)
    speaker = Speaker(own=policy, strange=strange)
    expected = KTOTrainer._compute_loss(stand_in, speaker, batch, return_outputs=False)
    drift = (sums(strange, strange_mask) - sums(strange_reference, strange_mask)).mean().clamp(min=0)
    single = LogProbabilities(
        torch.stack([sums(policy, mask), sums(strange, strange_mask)]),
        torch.stack([mask.sum(dim=1), strange_mask.sum(dim=1)]),
        torch.stack([sums(reference, mask), sums(strange_reference, strange_mask)]),
        good,
    )
    settings = LossSettings("kto", beta, desirable_weight=weights[0], undesirable_weight=weights[1])
    found = losses.kto(single, settings).mean()
    assert stand_in._metrics["train"]["kl"] == [pytest.approx(float(drift), rel=1e-5)]
    assert (float(drift) > 0) is (shift > 0) or shift == 0
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    gradients = [torch.autograd.grad(loss, policy)[0] for loss in (found, expected)]
    assert torch.allclose(*gradients, rtol=1e-5, atol=1e-8) and bool(gradients[0].any())
