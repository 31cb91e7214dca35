"""The table of corpus makers."""

from __future__ import annotations

import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.data.card import MAKERS


def test_every_row_names_a_function() -> None:
    """A row that points nowhere would only show when somebody asks for it."""
    for name in MAKERS:
        assert callable(MAKERS.load(name))


def test_a_typo_is_answered_with_the_nearest() -> None:
    """The message lists what there is."""
    with pytest.raises(UnknownName, match="Did you mean 'phantom'"):
        MAKERS.load("fantom")
