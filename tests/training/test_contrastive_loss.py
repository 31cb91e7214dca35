"""The loss of stage 1 against numbers worked out by hand, and over two real processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cxrlab.training.contrastive import Pairs, gather, report_key, symmetric_loss

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ZERO = torch.tensor(0.0)  # log of the scale: cosines as they are


def pairs(images: Tensor, texts: Tensor, reports: list[int] | None = None, image_ids: list[int] | None = None) -> Pairs:
    numbers = list(range(len(images)))
    return Pairs(images, texts, torch.tensor(image_ids or numbers), torch.tensor(reports or numbers))


def test_equal_similarities_leave_chance() -> None:
    """All cosines are 0, so each of N candidates is as likely as the next: ln N, both ways."""
    axes = torch.eye(8)
    assert symmetric_loss(pairs(axes[:4], axes[4:]), ZERO).item() == pytest.approx(math.log(4))


def test_own_report_at_cosine_one_and_others_at_zero() -> None:
    """ln(e + 2) − 1 with scale 1 and two others; e^s with scale e^s in general."""
    axes = torch.eye(3)
    assert symmetric_loss(pairs(axes, axes), ZERO).item() == pytest.approx(math.log(math.e + 2) - 1)
    scale = torch.tensor(math.log(5.0))
    assert symmetric_loss(pairs(axes, axes), scale).item() == pytest.approx(math.log(math.exp(5) + 2) - 5)


def test_both_directions_count_half() -> None:
    """Image 1 is at 45° to both texts, so rows and columns differ: worked out from the 2 × 2 table of cosines."""
    half = math.sqrt(0.5)
    images = torch.tensor([[half, half], [0.0, 1.0]])
    texts = torch.eye(2)
    table = [[half, half], [0.0, 1.0]]
    by_image = [math.log(sum(map(math.exp, row))) - row[k] for k, row in enumerate(table)]
    columns = list(zip(*table, strict=True))
    by_text = [math.log(sum(map(math.exp, column))) - column[k] for k, column in enumerate(columns)]
    wanted = (sum(by_image) / 2 + sum(by_text) / 2) / 2
    assert symmetric_loss(pairs(images, texts), ZERO).item() == pytest.approx(wanted)


def test_pairs_with_the_same_report_are_no_negatives() -> None:
    """Three pairs at cosine 0, two of them with one report: each of those has 2 candidates, the third has 3."""
    axes = torch.eye(6)
    loss = symmetric_loss(pairs(axes[:3], axes[3:], reports=[7, 7, 8]), ZERO)
    assert loss.item() == pytest.approx((2 * math.log(2) + math.log(3)) / 3)


def test_the_same_image_twice_is_no_negative() -> None:
    """One study seen twice with two wordings: neither text is wrong for the image."""
    axes = torch.eye(6)
    loss = symmetric_loss(pairs(axes[:3], axes[3:], image_ids=[4, 4, 5]), ZERO)
    assert loss.item() == pytest.approx((2 * math.log(2) + math.log(3)) / 3)


def test_a_pair_loses_what_it_would_lose_without_its_repeats() -> None:
    """The stated reason for masking: copies of a normal report do not change the loss of another copy."""
    torch.manual_seed(0)
    images, texts = torch.randn(5, 4), torch.randn(5, 4)
    texts[1] = texts[0]
    both = symmetric_loss(pairs(images, texts, reports=[1, 1, 2, 3, 4]), ZERO)
    # Rows 2 to 4 see both copies; rows 0 and 1 see everything but the other copy.
    cosines = torch.nn.functional.normalize(images, dim=1) @ torch.nn.functional.normalize(texts, dim=1).T
    total = 0.0
    for row in range(5):
        others = [k for k in range(5) if not (row != k and {row, k} == {0, 1})]
        for table in (cosines, cosines.T):
            total += (torch.logsumexp(table[row, others], 0) - table[row, row]).item()
    assert both.item() == pytest.approx(total / 10, rel=1e-5)


def test_all_reports_alike_give_no_loss_and_no_gradient() -> None:
    """Nothing can be distinguished, so nothing is learnt; a masked row must not become not-a-number."""
    images = torch.randn(3, 4, requires_grad=True)
    loss = symmetric_loss(pairs(images, torch.randn(3, 4), reports=[1, 1, 1]), ZERO)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0.0 and images.grad is not None and not images.grad.any()


def test_lengths_of_vectors_do_not_matter() -> None:
    torch.manual_seed(1)
    images, texts = torch.randn(4, 6), torch.randn(4, 6)
    scaled = symmetric_loss(pairs(3.0 * images, 0.1 * texts), ZERO)
    assert scaled.item() == pytest.approx(symmetric_loss(pairs(images, texts), ZERO).item(), rel=1e-5)


def test_half_precision_vectors_are_compared_in_full() -> None:
    vectors = torch.eye(3, dtype=torch.bfloat16)
    assert symmetric_loss(pairs(vectors, vectors), ZERO).dtype == torch.float32


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("The lungs are clear.", "the  lungs ARE clear", True),
        ("The lungs are clear.", "The lungs are not clear.", False),
        ("a 1.5 cm nodule", "a 15 cm nodule", False),
        ("", " . ", True),
    ],
)
def test_reports_are_the_same_by_their_words(first: str, second: str, same: bool) -> None:
    assert (report_key(first) == report_key(second)) is same
    assert -(2**63) <= report_key(first) < 2**63  # fits the tensor of keys


def test_alone_gather_gives_back_the_rows() -> None:
    rows = torch.randn(2, 3)
    assert gather(rows) is rows


PROCESS = """
import sys, torch, torch.distributed as dist
from cxrlab.training.contrastive import Pairs, symmetric_loss
rank, port, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
torch.manual_seed(5)
images, texts = torch.randn(8, 6, dtype=torch.float32), torch.randn(8, 6)
reports = torch.tensor([1, 2, 3, 4, 1, 5, 6, 2])  # repeats lie in different processes
weight = torch.nn.Parameter(torch.linspace(-1, 1, 36).reshape(6, 6))
scale = torch.nn.Parameter(torch.tensor(1.3))
mine = slice(4 * rank, 4 * rank + 4)
loss = symmetric_loss(Pairs(images[mine] @ weight, texts[mine], torch.arange(8)[mine], reports[mine]), scale)
loss.backward()
for value in (loss.data, weight.grad, scale.grad):
    dist.all_reduce(value)
    value /= 2  # what DistributedDataParallel does with gradients
if rank == 0:
    torch.save({"loss": loss.data, "weight": weight.grad, "scale": scale.grad}, out)
dist.destroy_process_group()
"""


@pytest.mark.full
def test_two_processes_with_half_the_batch_are_one_with_the_whole(tmp_path: Path) -> None:
    """Loss and gradients, also of what only the other process holds: without gradients through the gather, or with
    repeats masked within a process alone, the numbers differ in the first digits."""
    script, out = tmp_path / "process.py", tmp_path / "two.pt"
    script.write_text(PROCESS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(script)]
    started = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting"), str(out)], env=environment) for rank in (0, 1)
    ]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    torch.manual_seed(5)
    images, texts = torch.randn(8, 6), torch.randn(8, 6)
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 36).reshape(6, 6))
    scale = torch.nn.Parameter(torch.tensor(1.3))
    loss = symmetric_loss(pairs(images @ weight, texts, reports=[1, 2, 3, 4, 1, 5, 6, 2]), scale)
    loss.backward()  # type: ignore[no-untyped-call]
    two = torch.load(out)
    assert weight.grad is not None and scale.grad is not None
    torch.testing.assert_close(two["loss"], loss.data, rtol=0, atol=1e-6)
    torch.testing.assert_close(two["weight"], weight.grad, rtol=0, atol=1e-6)
    torch.testing.assert_close(two["scale"], scale.grad, rtol=0, atol=1e-6)
