from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cxrlab.core.model_interfaces import Capabilities, Embedder, Generated, ImageToText, Labeler, TextModel


class Constant:
    name = "stub:normal"
    capabilities = Capabilities(batch=True)

    def generate(self, images: Sequence[Any], indications: Sequence[str | None] | None = None) -> list[Generated]:
        return [Generated("No acute process.") for _ in images]


def test_a_class_with_the_right_members_is_a_model_without_inheriting() -> None:
    model = Constant()
    assert isinstance(model, ImageToText)
    assert not isinstance(model, (TextModel, Labeler, Embedder))


def test_nothing_is_promised_by_default() -> None:
    """A capability that is forgotten must read as absent."""
    assert Capabilities() == Capabilities(False, False, False, False, False)
    assert Generated("x").mean_logprob is None
