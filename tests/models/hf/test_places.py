from __future__ import annotations

import pytest
import torch

from cxrlab.core.errors import DataError
from cxrlab.models.hf.scoring import ReportPositions


def test_places_by_hand() -> None:
    """Reports of two tokens and of one, after prompts of two and of three: the first is predicted at position 1."""
    ids = torch.tensor([[5, 6, 7, 8, 0], [5, 5, 6, 9, 0]])
    found = ReportPositions.of(ids, torch.tensor([[0, 0, 1, 1, 0], [0, 0, 0, 1, 0]], dtype=torch.bool))
    assert found.count == 4  # logits of positions 1 to 4; the last tells nothing that is there
    assert found.mask.tolist() == [[True, True], [True, False]]
    assert found.ids.tolist() == [[7, 8], [9, 0]]
    assert found.order[0].tolist() == [0, 1] and int(found.order[1, 0]) == 1


def test_a_row_without_a_report_is_refused() -> None:
    with pytest.raises(DataError, match="give every image a report"):
        ReportPositions.of(torch.tensor([[5, 6]]), torch.tensor([[False, False]]))
