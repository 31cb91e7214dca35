"""Explaining one report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from corpora import content, toy_corpus
from planted_attention import PlantedModel
from tiny_families import save_tiny

from cxrlab.core.egress import EgressData
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import decode, encode_png
from cxrlab.data.config import ScenesConfig
from cxrlab.data.synthetic_scenes import make_scenes
from cxrlab.evaluation import explain as room
from cxrlab.evaluation.config import ExplainConfig
from cxrlab.evaluation.explain import explain, plan_explanation

TEXT = "Small left effusion. No right effusion."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llava", tmp_path_factory.mktemp("model"))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    path.write_bytes(encode_png(np.random.default_rng(0).integers(0, 255, (40, 56), dtype=np.uint8)))
    return path


def test_a_word_gives_pictures_arrays_and_a_record(folder: Path, image: Path, tmp_path: Path) -> None:
    """Both occurrences of the word, each map in its own resolution."""
    maps = ("max-mean", "layer:-1", "gradient", "sheet")
    config = ExplainConfig(f"hf:{folder}", image=image, report=TEXT, word=("Effusion",), maps=maps)
    done = explain(config, tmp_path / "run")
    (word,) = done.words
    assert (word.word, word.spans) == ("effusion", ((11, 19), (30, 38)))
    assert (done.grid, done.size, done.written_by, done.report) == ((2, 2), (40, 56), "user", TEXT)
    shapes = {name: np.load(tmp_path / "run" / file).shape for name, file in word.arrays.items()}
    assert shapes == {"max-mean": (2, 2, 2), "layer:-1": (2, 2, 2), "gradient": (2, 40, 56), "sheet": (2, 2, 2, 2, 2)}
    assert len(word.log_probability) == len(word.image_share) == 2 and max(word.log_probability) < 0
    for name in (word.picture, "explain/effusion.sheet.png", "words.png"):
        assert decode((tmp_path / "run" / name).read_bytes(), name).ndim == 3
    assert json.loads((tmp_path / "run" / "explain.json").read_text())["words"][0]["spans"] == [[11, 19], [30, 38]]


def test_every_word_by_default_and_a_finished_run_is_read_back(folder: Path, image: Path, tmp_path: Path) -> None:
    config = ExplainConfig(f"hf:{folder}", image=image, report=TEXT, maps=("max-mean",))
    (work,) = plan_explanation(config, tmp_path / "run").work
    assert not (tmp_path / "run").exists()
    done = explain(config, tmp_path / "run")
    assert [word.word for word in done.words] == ["small", "left", "effusion", "no", "right"]
    assert (work.count, work.measured) == (sum(len(word.spans) for word in done.words), 2)
    assert not plan_explanation(config, tmp_path / "run").work
    before = content(tmp_path / "run")
    assert explain(config, tmp_path / "run") == done and content(tmp_path / "run") == before


def test_the_same_settings_give_the_same_numbers(folder: Path, image: Path, tmp_path: Path) -> None:
    config = ExplainConfig(f"hf:{folder}", image=image, report=TEXT, word=("left",))
    for name in ("one", "two"):
        explain(config, tmp_path / name)
    one, two = (content(tmp_path / name / "explain") for name in ("one", "two"))
    assert one == two and len(one) == 3


def test_the_models_own_report_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study's image and indication; words that share a file name are distinguished."""
    model = PlantedModel("Large LEFT-sided effusion, left sided.")
    monkeypatch.setattr(room, "open_model", lambda name, loading, shown: model)
    toy_corpus(tmp_path / "c")
    asked = ExplainConfig("planted:one", data=tmp_path / "c", study="s2", maps=("layer:1",))
    subject = room._Subject("s2", np.eye(32, dtype=np.float32), None, EgressData("c", synthetic=True))
    monkeypatch.setattr(room, "_subject", lambda config: subject)
    done = explain(asked, tmp_path / "run")
    assert (done.image, done.written_by) == ("s2", "model")
    words = {word.word: word.picture for word in done.words}
    assert words["left-sided"] == "explain/left-sided.png" and model.generated == 1
    phrase = ExplainConfig(
        "planted:one", data=tmp_path / "c", study="s2", word=("left sided", "left-sided"), maps=("sheet",)
    )
    both = explain(phrase, tmp_path / "phrase")
    assert {word.picture for word in both.words} == {"explain/left-sided.png", "explain/left-sided-2.png"}
    assert both.overview is None  # a sheet alone has no map to show


def test_a_study_brings_its_image_and_indication(tmp_path: Path) -> None:
    from cxrlab.core.records import Report

    toy_corpus(tmp_path / "c", changes={1: {"sections": Report(indication="dyspnea")}})
    found = room._subject(ExplainConfig("m:x", data=tmp_path / "c", study="s1"))
    assert (found.name, found.indication, found.image.shape) == ("s1", "dyspnea", (24, 24))
    assert (
        room._subject(ExplainConfig("m:x", data=tmp_path / "c", study="s1", indication="fever")).indication == "fever"
    )
    with pytest.raises(DataError, match="no study 's77'"):
        room._subject(ExplainConfig("m:x", data=tmp_path / "c", study="s77"))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"word": ("efusion",)}, DataError, "Did you mean 'effusion'"),
        ({"maps": ("layer:9",)}, ConfigError, "a model that has 2"),
        ({"model": "stub:normal"}, ConfigError, "gives no attention"),
        ({"image": Path("nowhere.png")}, DataError, "does not exist"),
    ],
)
def test_a_mistake_leaves_no_run_behind(
    changes: dict[str, Any], error: type[Exception], message: str, folder: Path, image: Path, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"model": f"hf:{folder}", "image": image, "report": TEXT, **changes}
    with pytest.raises(error, match=message):
        explain(ExplainConfig(**values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_of_tiles_gives_gradients_but_no_attention(image: Path, tmp_path: Path) -> None:
    model = f"hf:{save_tiny('llava_next', tmp_path / 'model')}"
    with pytest.raises(ConfigError, match="no attention on one grid of the image.*--maps gradient"):
        explain(ExplainConfig(model, image=image, report=TEXT, word=("left",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    done = explain(ExplainConfig(model, image=image, report=TEXT, word=("left",), maps=("gradient",)), tmp_path / "run")
    assert done.grid is None and np.load(tmp_path / "run/explain/left.gradient.npy").shape == (1, 40, 56)


def test_a_wordless_report_is_refused(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "open_model", lambda name, loading, shown: PlantedModel(" ... "))
    with pytest.raises(DataError, match="report without a word"):
        explain(ExplainConfig("planted:one", image=image, maps=("layer:1",)), tmp_path / "run")
    with pytest.raises(DataError, match="--report is a text without a word"):
        explain(
            ExplainConfig("planted:one", image=image, maps=("layer:1",), report="...", word=("x",)), tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_a_captioned_picture_is_explained_in_its_colours(folder: Path, tmp_path: Path) -> None:
    """A model of pictures was shown them in colour; a grey one would be another picture."""
    corpus = make_scenes(ScenesConfig(n=2, size=32, seed=1, workers=1), tmp_path / "scenes")
    study = next(iter(corpus))
    config = ExplainConfig(f"hf:{folder}", data=corpus.path, study=study.id, report="red disc", maps=("gradient",))
    explain(config, tmp_path / "run")
    page = decode((tmp_path / "run" / "explain" / "red.png").read_bytes(), "red").astype(int)
    image = page[10:330, 10:330]  # the first panel is the image alone
    assert np.ptp(image, axis=2).max() > 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "name one image"),
        ({"image": Path("a"), "data": Path("b"), "study": "s"}, "name one image"),
        ({"data": Path("b")}, "name one image"),
        ({"image": Path("a"), "study": "s"}, "name one image"),
        ({"image": Path("a"), "report": " "}, "--report is empty"),
        ({"image": Path("a"), "maps": ()}, "maps is empty"),
        ({"image": Path("a"), "alpha": 0.0}, "alpha=0.0"),
    ],
)
def test_settings_that_contradict_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExplainConfig("hf:x", **changes)
