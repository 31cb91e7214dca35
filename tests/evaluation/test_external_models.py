"""A corpus is called external only where the model can tell what it has learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.model_interfaces import Capabilities, Generated, HasTrainingCollections
from cxrlab.data.card import read_card
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import check_external_model, generate
from cxrlab.models.baselines import Stub


def call_it(corpus: Path, collection: str) -> None:
    """Write another collection on the card of a corpus."""
    card = corpus / "card.yaml"
    card.write_text(card.read_text() + f"collections: [{collection}]\n")
    assert read_card(card).collections == (collection,)


def test_a_library_of_the_same_collection_is_refused_before_anything_is_made(
    phantom: Path, own_phantom: Path, tmp_path: Path
) -> None:
    """Open-I is one collection with IU X-ray: a model that looks among one is not tested externally on the other."""
    call_it(own_phantom, "indiana")
    asked = GenerateConfig(f"retrieval:{own_phantom}", own_phantom, split="val", external=True)
    with pytest.raises(DataError, match="is not external: its images come from indiana"):
        generate(asked, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    done = generate(GenerateConfig(f"retrieval:{phantom}", own_phantom, "val", n=2, external=True), tmp_path / "run")
    assert done.predictions == 2


def test_a_model_that_has_learnt_from_nothing_finds_every_corpus_external(phantom: Path, tmp_path: Path) -> None:
    assert isinstance(Stub("normal"), HasTrainingCollections)
    done = generate(GenerateConfig("stub:normal", phantom, "val", n=1, external=True), tmp_path / "run")
    assert done.predictions == 1


class Learned:
    """A model that tells what it has learnt from."""

    name = "hf:learned"
    capabilities = Capabilities()
    collections = ("phantom",)

    def generate(self, images: Sequence[object], indications: Sequence[str | None] | None = None) -> list[Generated]:
        return []


class Silent:
    """A model that does not."""

    name = "hf:silent"
    capabilities = Capabilities()

    def generate(self, images: Sequence[object], indications: Sequence[str | None] | None = None) -> list[Generated]:
        return []


def test_a_trained_model_is_asked_itself(phantom: Path, own_phantom: Path) -> None:
    with pytest.raises(DataError, match="the model 'hf:learned'"):
        check_external_model(Learned(), load_corpus(phantom))
    call_it(own_phantom, "elsewhere")
    check_external_model(Learned(), load_corpus(own_phantom))
    with pytest.raises(ConfigError, match="'hf:silent'.*--external"):
        check_external_model(Silent(), load_corpus(own_phantom))


def test_a_model_that_has_read_the_reports_is_no_stranger(phantom: Path, tmp_path: Path) -> None:
    """The general model has seen no phantom, but it has learnt from what is written about them."""
    with pytest.raises(DataError, match="is not external"):
        generate(GenerateConfig("builtin:general", phantom, "val", n=1, external=True), tmp_path / "run")
    assert not (tmp_path / "run").exists()
