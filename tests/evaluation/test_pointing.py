"""The pointing game, on a model whose attention is planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from corpora import CARD
from planted_attention import PlantedModel
from tiny_families import save_tiny

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Finding, ImageFile, Report, Study
from cxrlab.core.vocabulary import Presence, Side, View
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation import pointing as room
from cxrlab.evaluation.config import PointingConfig
from cxrlab.evaluation.pointing import Kind, find_reported, plan_pointing, pointing
from cxrlab.evaluation.saliency_maps import GRADIENTS

pytestmark = pytest.mark.slow

LEFT = "Nodule in the left upper lobe."


def box(top: int, left: int, side: int = 8) -> Any:
    found = np.zeros((32, 32), bool)
    found[top : top + side, left : left + side] = True
    return found


def corpus(path: Path, bright: Any = None, count: int = 3, **changes: Any) -> Path:
    """Images with one bright square; the nodule's mask is the patch in row 1, column 2 of 4 x 4."""
    with CorpusWriter(path, CARD) as writer:
        for number in range(count):
            values = {
                "id": f"s{number}",
                "patient": f"p{number}",
                "split": "test",
                "images": (ImageFile(f"images/{number}.png", View.PA),),
                "sections": Report(findings=LEFT),
                "findings": (Finding("nodule", side=Side.LEFT), Finding("edema", Presence.ABSENT)),
                "masks": {"0": f"masks/{number}.png"},
            }
            mask = box(8, 16)
            image = (bright if bright is not None else mask).astype(np.uint8) * 250
            files = {f"images/{number}.png": encode_png(image), f"masks/{number}.png": encode_png(mask)}
            writer.add(Study(**{**values, **changes}), files)
    writer.finish()
    return path


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> PlantedModel:
    model = PlantedModel(LEFT)
    monkeypatch.setattr(room, "open_model", lambda name, loading, shown: model)
    return model


def config(data: Path, **changes: Any) -> PointingConfig:
    return PointingConfig(**{"model": "planted:one", "data": data, "maps": ("layer:1",), "trials": 50, **changes})


def test_looking_at_the_finding_is_a_hit(tmp_path: Path, planted: PlantedModel) -> None:
    """All of head 1 and a 16th of head 2 lie in the mask, which is one cell: mass (0.375 + 1/64) / (0.375 + 1/4)."""
    table = pointing(config(corpus(tmp_path / "c")), tmp_path / "run")
    row = table.maps["layer:1"].localised
    assert (row["hit"].value, row["hit"].n, row["hit"].low) == pytest.approx((1.0, 3, 0.025 ** (1 / 3)))
    assert row["chance"].value == row["area"].value == pytest.approx(1 / 16)
    assert row["mass"].value == pytest.approx((0.375 + 1 / 64) / (0.375 + 16 / 64), rel=1e-5)
    assert (table.studies, table.present, table.reported) == (3, 3, 3)
    assert table.maps["layer:1"].by_observation["nodule"].value == 1.0


def test_the_plan_counts_the_studies_and_writes_nothing(tmp_path: Path, planted: PlantedModel) -> None:
    given = config(corpus(tmp_path / "c"), batch_size=2)
    before = sorted(tmp_path.rglob("*"))
    (work,) = plan_pointing(given, tmp_path / "run").work
    assert (
        (work.count, work.measured, work.left) == (3, 2, 3) and work.seconds and sorted(tmp_path.rglob("*")) == before
    )
    pointing(given, tmp_path / "run")
    assert not plan_pointing(given, tmp_path / "run").work


def test_looking_elsewhere_is_none(tmp_path: Path, planted: PlantedModel) -> None:
    table = pointing(config(corpus(tmp_path / "c", bright=box(24, 0))), tmp_path / "run")
    assert table.maps["layer:1"].all["hit"].value == 0.0


def test_only_what_is_told_with_kind_and_side_counts(tmp_path: Path, planted: PlantedModel) -> None:
    """A nodule on the other side, or another finding, gives nothing to point at."""
    for number, report in enumerate(("Nodule in the right upper lobe.", "Left effusion.", "No left nodule.")):
        planted.report = report
        with pytest.raises(DataError, match="none of the 3 findings with a mask on 3 images is reported"):
            pointing(config(corpus(tmp_path / f"c{number}")), tmp_path / f"run{number}")
    table = pointing(config(tmp_path / "c0", report="reference"), tmp_path / "run")
    assert table.reported == 3 and planted.generated == 9


def test_a_finding_with_a_large_mask_is_not_localised(tmp_path: Path, planted: PlantedModel) -> None:
    table = pointing(config(corpus(tmp_path / "c"), localised=0.05), tmp_path / "run")
    assert table.maps["layer:1"].localised["hit"].n == 0 and table.maps["layer:1"].all["hit"].n == 3
    assert np.isnan(table.maps["layer:1"].localised["hit"].value)


def test_two_findings_of_a_kind_are_one_with_both_masks(tmp_path: Path, planted: PlantedModel) -> None:
    twins = (Finding("nodule", side=Side.LEFT), Finding("nodule", side=Side.LEFT))
    path = corpus(tmp_path / "c", count=1, findings=twins, masks={"0": "masks/0.png", "1": "masks/0.png"})
    assert pointing(config(path), tmp_path / "run").present == 1


def test_masks_belong_to_the_first_image(tmp_path: Path, planted: PlantedModel) -> None:
    """Where the frontal image is the second, nothing can be scored."""
    images = (ImageFile("images/0.png", View.LATERAL), ImageFile("images/0.png", View.PA))
    with pytest.raises(DataError, match="none of the 0 findings"):
        pointing(config(corpus(tmp_path / "c", count=1, images=images)), tmp_path / "run")


def test_a_stopped_run_ends_with_the_same_bytes(
    tmp_path: Path, planted: PlantedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path / "c", count=5)
    whole = config(data, batch_size=2)
    pointing(whole, tmp_path / "straight")
    true, seen = room._score_study, []

    def failing(*given: Any) -> Any:
        seen.append(given)
        if len(seen) == 4:
            raise KeyboardInterrupt
        return true(*given)

    monkeypatch.setattr(room, "_score_study", failing)
    with pytest.raises(KeyboardInterrupt):
        pointing(whole, tmp_path / "resumed")
    pointing(whole, tmp_path / "resumed")
    for name in ("pointing.jsonl", "pointing.json"):
        assert (tmp_path / "resumed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    assert len(seen) == 6  # four, of which the last failed, and the two that were left
    again = pointing(whole, tmp_path / "resumed")
    assert len(seen) == 6 and again.maps["layer:1"].localised["hit"].n == 5


def test_words_are_those_that_the_reader_marks() -> None:
    text = "No effusion. Small left pleural effusion. Left pleural effusion again; mild cardiomegaly."
    found = find_reported(text)
    assert set(found) == {Kind("pleural effusion", "left"), Kind("cardiomegaly", None)}
    assert all("effusion" in text[start:end] for start, end in found[Kind("pleural effusion", "left")])


def test_a_corpus_without_masks_is_refused(phantom: Path, planted: PlantedModel, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data make phantom"):
        pointing(config(phantom), tmp_path / "run")


def test_an_untrained_model_gets_a_row_for_every_map_near_chance(tmp_path: Path) -> None:
    """Mechanics on a true checkpoint: all layers, relative ones and gradients, mass near area (within a factor 2)."""
    path = make_phantom(PhantomConfig(n=24, size=64, seed=5, workers=1), tmp_path / "c").path
    folder = save_tiny("llava", tmp_path / "model")
    asked = PointingConfig(f"hf:{folder}", path, split="train", n=6, report="reference", trials=20)
    table = pointing(asked, tmp_path / "run")
    attention = ["max-mean", "layer:1", "layer:2"]
    assert list(table.maps) == [*attention, *(f"relative:{name}" for name in attention), *GRADIENTS]
    assert (
        table.reported > 3
        and json.loads((tmp_path / "run" / "pointing.json").read_text())["reported"] == table.reported
    )
    for row in table.maps.values():
        assert 0.5 < row.all["mass"].value / row.all["area"].value < 2
    assert PointingConfig(f"hf:{folder}", path, n=4).loading.attention == "sdpa"  # explaining loads eager by itself


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maps": ("sheet",)}, "not a single map"),
        ({"maps": ("max-mean", "max-mean")}, "named twice"),
        ({"maps": ("max",)}, "no map 'max'"),
        ({"split": "tset"}, "Did you mean 'test'"),
        ({"n": 0}, "n=0"),
        ({"localised": 0.0}, "localised=0.0"),
        ({"smooth": -1.0}, "smooth=-1.0"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(Path("c"), **changes)
