from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer
from tiny_models import save_tiny_llava

from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.core.model_interfaces import ImageToText
from cxrlab.models.baselines import Exemplar
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_registry import (
    ENCODER_KINDS,
    KINDS,
    TEXT_KINDS,
    ModelName,
    list_models,
    model_class,
    parse_name,
)

# One working argument for every row of the table; a new kind without one fails below.
ARGUMENTS = {
    "stub": "stub:normal",
    "retrieval": "retrieval:some/corpus",
    "hf": "hf:{tmp}/llava",
    "builtin": "builtin:reporter",
    **dict.fromkeys(("chexagent", "chexagent-2", "maira-2")),  # need code of others: test_foreign_models.py
    "http": "{server}",
    "https": None,  # the same class; nobody on this machine has a certificate to answer with
}


def library(corpus: str) -> Iterable[Exemplar]:
    assert corpus == "some/corpus"
    rng = np.random.default_rng(7)
    return [Exemplar(f"s{k}", f"p{k}", rng.random((20, 20), dtype=np.float32), f"Report {k}.") for k in range(3)]


@pytest.mark.parametrize(
    ("name", "kind", "argument"),
    [
        ("stub:normal", "stub", "normal"),
        ("retrieval:corpora/a", "retrieval", "corpora/a"),
        ("retrieval:C:\\images", "retrieval", "C:\\images"),  # split at the first colon only
        ("http://localhost:8000/v1#m", "http", "http://localhost:8000/v1#m"),  # an address is taken whole
        ("https://host/v1#a:b", "https", "https://host/v1#a:b"),
    ],
)
def test_a_name_is_split_at_its_first_colon(name: str, kind: str, argument: str) -> None:
    assert parse_name(name) == ModelName(kind, argument)


@pytest.mark.parametrize("name", ["", "normal", "stub:", ":normal"])
def test_what_is_not_a_name_is_told_with_an_example(name: str) -> None:
    with pytest.raises(ConfigError, match="stub:normal"):
        model_class(name)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("gpt-4o", ("https://HOST/v1#gpt-4o",)),
        ("org/model", ("hf:org/model", "https://HOST/v1#org/model")),
        ("microsoft/llava-rad", ("hf:microsoft/llava-rad", "models convert llava-rad", "hf:FOLDER")),
        ("hf", ("hf:PATH_OR_ID",)),
    ],
)
def test_a_name_without_a_kind_is_told_how_to_be_written(name: str, reported: tuple[str, ...]) -> None:
    for kinds in (KINDS, TEXT_KINDS):
        with pytest.raises(ConfigError) as error:
            parse_name(name, kinds)
        assert all(part in str(error.value) for part in reported)
    assert ("hf:gpt-4o" in str(error.value)) is False


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("StanfordAIMI/CheXagent-2-3b", "chexagent-2"),
        ("StanfordAIMI/CheXagent-8b", "chexagent"),
        ("microsoft/maira-2", "maira-2"),
    ],
)
def test_published_models_with_their_own_code_have_kinds(name: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"write {kind}:{name} "):
        parse_name(name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if ARGUMENTS[kind] is not None])
def test_every_kind_loads_and_answers_each_image(kind: str, tmp_path: Path) -> None:
    """The protocol of every row: its name leads back to it, and one answer comes for each image, whatever its size."""
    save_tiny_llava(tmp_path / "llava")
    with ChatServer() as server:
        name = str(ARGUMENTS[kind]).format(tmp=tmp_path, server=server.address())
        model = model_class(name).load(parse_name(name).argument, library, LoadSettings())
        assert isinstance(model, ImageToText) and model.name == name
        images = [np.zeros((8, 8), np.float32), np.full((30, 17), 0.5, np.float32)]
        answers = model.generate(images, ["cough", None])
        assert [type(answer.text) for answer in answers] == [str, str]
        assert model.generate([]) == []


def test_the_two_schemes_of_an_address_are_one_kind() -> None:
    for kinds in (KINDS, TEXT_KINDS):
        assert kinds.load("http") is kinds.load("https")


@pytest.mark.parametrize("name", ["ftp://localhost/v1#m", "gpt:small", "stubs:normal"])
def test_a_kind_that_does_not_exist_is_said_to_be_missing_with_those_that_do(name: str) -> None:
    with pytest.raises(UnknownName) as error:
        model_class(name)
    for usage in ("this version has no", "stub:normal", "retrieval:CORPUS"):
        assert usage in str(error.value)


def test_a_slip_of_the_pen_is_met_with_the_nearest_kind() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'retrieval'"):
        model_class("retreival:x")


def test_the_list_shows_at_least_one_name_for_every_kind() -> None:
    """Models of images and of text, each said to be what it is."""
    shown = [(row["reads"], row["name"].partition(":")[0]) for row in list_models()]
    tables = (("images", KINDS), ("text", TEXT_KINDS), ("images and text", ENCODER_KINDS))
    assert set(shown) == {(reads, kind) for reads, kinds in tables for kind in kinds if kind != "https"}
    assert shown.count(("images", "http")) == shown.count(("text", "http")) == 1  # with https, once in each
    assert all(row["does"] for row in list_models())
