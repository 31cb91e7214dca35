from __future__ import annotations

import pytest

pytest.importorskip("torch")

from cxrlab.models.text_batches import batches  # noqa: E402


def test_batches_hold_every_text_once_longest_first_with_its_own_mask() -> None:
    ids = [[5], [1, 2, 3], [], [7, 8], [4, 4, 4]]
    found = list(batches(ids, pad=0, size=2))
    assert [batch.rows for batch in found] == [(1, 4), (3, 0)]
    assert found[1].ids.tolist() == [[7, 8], [5, 0]] and found[1].mask.tolist() == [[1, 1], [1, 0]]


def test_no_text_makes_no_batch() -> None:
    assert list(batches([], pad=0, size=2)) == list(batches([[]], pad=0, size=2)) == []
