from __future__ import annotations

import pytest

from cxrlab.core.errors import DataError
from cxrlab.data.card import Card, check_external, check_no_shared_collections, collections_of


def card(name: str, *collections: str) -> Card:
    return Card(name, collections=collections)


def test_two_forms_of_one_collection_are_not_external_to_each_other() -> None:
    """Both ways round, whatever the corpora are called."""
    iu, openi = card("iu-xray", "indiana"), card("openi", "indiana")
    for seen, tested in ((iu, openi), (openi, iu)):
        with pytest.raises(DataError, match="is not external: its images come from indiana"):
            check_external(seen, tested)


def test_one_shared_collection_of_several_is_enough() -> None:
    check_external(card("mixed", "a", "b"), card("x", "c"))
    with pytest.raises(DataError, match="come from b, "):
        check_external(card("mixed", "a", "b"), card("x", "b", "c"))


def test_a_corpus_made_here_is_a_collection_of_its_maker() -> None:
    assert collections_of(card("phantom")) == ("phantom",)
    check_external(card("phantom"), card("openi", "indiana"))
    with pytest.raises(DataError, match="not external"):
        check_external(card("phantom"), card("phantom"))


@pytest.mark.parametrize("nameless", [card("image-folder"), card("composed", "indiana", "unknown")])
def test_what_nobody_knows_is_never_called_external(nameless: Card) -> None:
    for seen, tested in ((nameless, card("x", "c")), (card("x", "c"), nameless)):
        with pytest.raises(DataError, match=f"'{nameless.name}' does not name all its collections"):
            check_external(seen, tested)


def test_nothing_learnt_shares_nothing() -> None:
    """A stub that learnt from no collection is external everywhere; one that learnt from this collection is not."""
    check_no_shared_collections((), ("indiana",), "a stub", "openi")
    with pytest.raises(DataError, match="indiana"):
        check_no_shared_collections(("indiana",), ("indiana",), "a model", "openi")
