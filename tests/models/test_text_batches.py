from __future__ import annotations

import pytest

pytest.importorskip("torch")

from cxrlab.core.out_of_memory import BatchSize  # noqa: E402
from cxrlab.models.tokenization import TextBatch, in_batches  # noqa: E402


def batches(ids: list[list[int]], size: int) -> list[TextBatch]:
    found: list[TextBatch] = []
    in_batches(ids, 0, BatchSize(size), found.append)
    return found


def test_batches_hold_every_text_once_longest_first_with_its_own_mask() -> None:
    ids = [[5], [1, 2, 3], [], [7, 8], [4, 4, 4]]
    found = batches(ids, 2)
    assert [batch.rows for batch in found] == [(1, 4), (3, 0)]
    assert found[1].ids.tolist() == [[7, 8], [5, 0]] and found[1].mask.tolist() == [[1, 1], [1, 0]]


def test_no_text_makes_no_batch() -> None:
    assert batches([], 2) == batches([[]], 2) == []
