from __future__ import annotations

from pathlib import Path

from cxrlab.data.config import PhantomConfig, ScenesConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.scenes import make_scenes
from cxrlab.studies.overview import corpus_overview


def test_each_finding_is_counted_once_a_study(tmp_path: Path) -> None:
    """Recounted in another way: studies whose set of present observations holds the name."""
    corpus = make_phantom(PhantomConfig(n=50, size=32, masks=False, workers=1), tmp_path / "corpus")
    rows = corpus_overview(corpus)["findings"]
    assert rows
    for row in rows:
        holding = [
            study for study in corpus if any(f.present and f.observation == row["observation"] for f in study.findings)
        ]
        assert row["studies"] == len(holding) == row["train"] + row["val"] + row["test"]
        assert row["test"] == sum(study.split == "test" for study in holding)
    assert [row["studies"] for row in rows] == sorted((row["studies"] for row in rows), reverse=True)


def test_a_corpus_without_known_findings_has_none_to_count(tmp_path: Path) -> None:
    corpus = make_scenes(ScenesConfig(n=3, size=32, workers=1), tmp_path / "scenes")
    told = corpus_overview(corpus)
    assert told["findings"] == [] and told["counts"]["studies"] == 3 and told["name"] == "scenes"
