"""A table of models under one protocol: audits that resume, rows of others, and rows that are refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import planted_targets as planted
import pytest
import yaml

from cxrlab.cli.main import main
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.robustness import audit as audits
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.studies import leaderboard
from cxrlab.studies.leaderboard import LeaderboardConfig, make_leaderboard, read_protocol, weights_hash

pytestmark = pytest.mark.slow

METRICS = ["findings.f1", "closed_questions.accuracy"]


def protocol(folder: Path, images: Path, **changes: Any) -> Path:
    audit = {
        "attacks": ["pgd"], "eps": ["4/255", "16/255"], "only_labels": [planted.NAME], "trials": 20, "triptychs": 0,
        "control_studies": 24, "rounded": True, "uint8": False, "transfer": False, "attack": {"steps": 5},
    }  # fmt: skip
    values = {"name": "test", "version": 1, "corpus": {"folder": str(images)}, "audit": audit, "metrics": METRICS,
              "rank_by": "findings.f1", **changes}  # fmt: skip
    file = folder / f"protocol{len(list(folder.glob('protocol*')))}.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return planted.pattern_corpus(tmp_path / "corpus", 24).path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that an audit opened: planted ones in place of names, the last letter of a name deciding which."""
    kinds = {"r": planted.PatternTarget, "d": planted.BlindTarget}
    names: list[str] = []

    def load(key: str, name: str, labels: Any, config: Any, **_: Any) -> Any:
        names.append(name)
        return kinds[name[-1]](key, name, labels)

    monkeypatch.setattr(audits, "load_audited_model", load)
    monkeypatch.setattr(leaderboard, "weights_hash", lambda model: f"weights of {model}")
    return names


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted((folder / "rows").glob("*.json"))]


def test_models_are_ranked_and_a_blind_one_has_no_rank(tmp_path: Path, corpus: Path, opened: list[str]) -> None:
    config = LeaderboardConfig(protocol=protocol(tmp_path, corpus))
    found = make_leaderboard(["planted:blind", "planted:seer"], config, tmp_path / "table")
    first, second = found["rows"]
    assert (first["model"], first["rank"]) == ("planted:seer", 1) and first["image_dependence"] == "uses_image"
    # Nothing fools a model that ignores its image, and it would come first.
    assert (second["model"], second["rank"]) == ("planted:blind", None)
    assert (
        first["results"]["worst@16/255"]["findings.f1"]["value"] == 0
        and first["results"]["clean"]["findings.f1"]["value"] == 1
    )
    assert found["rank_by"] == "findings.f1 at worst@16/255"
    words = (tmp_path / "table" / "leaderboard.md").read_text()
    assert words.index("planted:seer") < words.index("planted:blind") and "test v1" in words
    assert "planted:seer" in (tmp_path / "table" / "leaderboard.html").read_text()


def test_a_finished_audit_is_kept_and_another_model_is_added(tmp_path: Path, corpus: Path, opened: list[str]) -> None:
    config = LeaderboardConfig(protocol=protocol(tmp_path, corpus))
    make_leaderboard(["planted:seer"], config, tmp_path / "table")
    found = make_leaderboard(["planted:seer", "planted:blind"], config, tmp_path / "table")
    assert opened == ["planted:seer", "planted:blind"] and len(found["rows"]) == 2
    assert len(make_leaderboard([], config, tmp_path / "table")["rows"]) == 2  # the table alone, from the rows


def test_rows_of_others_are_merged_once(tmp_path: Path, corpus: Path, opened: list[str]) -> None:
    file = protocol(tmp_path, corpus)
    make_leaderboard(["planted:seer"], LeaderboardConfig(protocol=file), tmp_path / "theirs")
    config = LeaderboardConfig(protocol=file, rows=(tmp_path / "theirs",))
    found = make_leaderboard(["planted:blind"], config, tmp_path / "ours")
    assert {row["model"] for row in found["rows"]} == {"planted:seer", "planted:blind"}
    table = ["leaderboard", "--protocol", str(file), "--out", str(tmp_path / "ours")]
    assert main(table) == 0 and len(rows_of(tmp_path / "ours")) == 2
    assert main([*table, "--rows", str(tmp_path / "theirs")]) == 0 and len(rows_of(tmp_path / "ours")) == 2
    assert opened == ["planted:seer", "planted:blind"]


def test_a_row_of_another_protocol_is_refused(tmp_path: Path, corpus: Path, opened: list[str]) -> None:
    make_leaderboard(["planted:seer"], LeaderboardConfig(protocol=protocol(tmp_path, corpus)), tmp_path / "theirs")
    other = protocol(tmp_path, corpus, version=2)
    with pytest.raises(DataError, match=r"row of the protocol test v1 \(\w{12}\), not of test v2"):
        make_leaderboard([], LeaderboardConfig(protocol=other, rows=(tmp_path / "theirs",)), tmp_path / "ours")
    with pytest.raises(ConfigError, match="table under the protocol test v1"):
        make_leaderboard([], LeaderboardConfig(protocol=other), tmp_path / "theirs")


def test_rows_of_other_images_or_other_figures_are_refused(tmp_path: Path, corpus: Path, opened: list[str]) -> None:
    file = protocol(tmp_path, corpus)
    make_leaderboard(["planted:seer"], LeaderboardConfig(protocol=file), tmp_path / "ours")
    (row,) = rows_of(tmp_path / "ours")
    changed = tmp_path / "changed.json"
    row["results"]["clean"]["findings.f1"]["value"] = 0.5
    changed.write_text(json.dumps(row))
    with pytest.raises(DataError, match="has the weights of 'planted:seer' in .* and other figures"):
        make_leaderboard([], LeaderboardConfig(protocol=file, rows=(changed,)), tmp_path / "ours")
    changed.write_text(json.dumps({**row, "weights_sha256": "others", "corpus_sha256": "others"}))
    with pytest.raises(DataError, match="different images"):
        make_leaderboard([], LeaderboardConfig(protocol=file, rows=(changed,)), tmp_path / "ours")
    changed.write_text("{}")
    with pytest.raises(DataError, match="is not a row .* 'format' is missing"):
        make_leaderboard([], LeaderboardConfig(protocol=file, rows=(changed,)), tmp_path / "ours")
    # A refused row leaves the table as it was.
    assert [
        row["model"] for row in make_leaderboard([], LeaderboardConfig(protocol=file), tmp_path / "ours")["rows"]
    ] == ["planted:seer"]


def test_rows_edited_by_hand_are_refused(tmp_path: Path, corpus: Path, opened: list[str]) -> None:
    """Also one with a further radius, by which the whole table would have been ordered."""
    config = LeaderboardConfig(protocol=protocol(tmp_path, corpus), rows=(tmp_path / "changed.json",))
    twin = tmp_path / "twin.json"
    make_leaderboard(["planted:seer"], dataclasses.replace(config, rows=()), tmp_path / "ours")
    row = {**rows_of(tmp_path / "ours")[0], "weights_sha256": "others"}
    clean = row["results"]["clean"]
    typed = {**clean, "findings.f1": {**clean["findings.f1"], "value": "0.9"}}
    for change, message in (
        ({"protocol": "test"}, "'protocol' is of another type"),
        ({"model": ["planted:seer"]}, "'model' is of another type"),
        ({"results": {"clean": 1.0}}, "results of 'clean' are not numbers"),
        ({"results": {**row["results"], "clean": typed}}, "results of 'clean' are not numbers"),
        (
            {"results": {**row["results"], "worst@64/255": clean}},
            "different results: clean, .* and clean, .*worst@64/255",
        ),
    ):
        (tmp_path / "changed.json").write_text(json.dumps({**row, **change}))
        with pytest.raises(DataError, match=message):
            make_leaderboard([], config, tmp_path / "ours")
    assert len(rows_of(tmp_path / "ours")) == 1
    twin.write_text(json.dumps({**row, "model": "planted:twin"}))
    equal = make_leaderboard([], dataclasses.replace(config, rows=(twin,)), tmp_path / "ours")
    assert [one["rank"] for one in equal["rows"]] == [1, 1]


def test_weights_that_were_exchanged_have_no_row_with_the_old_figures(
    tmp_path: Path, corpus: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LeaderboardConfig(protocol=protocol(tmp_path, corpus))
    make_leaderboard(["planted:seer"], config, tmp_path / "table")
    monkeypatch.setattr(leaderboard, "weights_hash", lambda model: "trained further")
    with pytest.raises(DataError, match="are others than those"):
        make_leaderboard(["planted:seer"], config, tmp_path / "table")
    assert rows_of(tmp_path / "table")[0]["weights_sha256"] == "weights of planted:seer"


def test_the_hash_is_of_the_settings_alone(tmp_path: Path, corpus: Path) -> None:
    first, second = protocol(tmp_path, corpus), protocol(tmp_path, corpus, about="In other words.")
    assert read_protocol(first).sha256 == read_protocol(second).sha256
    assert read_protocol(protocol(tmp_path, corpus, rank_by=METRICS[1])).sha256 != read_protocol(first).sha256


def test_the_shipped_protocol_leaves_no_effort_of_an_attack_to_a_default() -> None:
    shipped = read_protocol()
    assert (shipped.name, shipped.version) == ("phantom-linf", 1)
    audit = shipped.audit
    used = {"steps", "step_size", "restarts", "random_start", "keep", "early_exit", "queries"}
    assert set(audit["attack"]) == used
    assert {"eps", "norm", "aims", "against", "region", "n", "split", "seed", "rounded", "labels"} <= set(audit)
    RobustnessConfig(model="builtin:reporter", data=Path("corpus"), n=audit["n"], attacks=tuple(audit["attacks"]))
    # Other figures under the same name and version: raise the version when this changes.
    assert shipped.sha256.startswith("3a213f204194")


@pytest.mark.parametrize(
    ("models", "changes", "message"),
    [
        (["https://host/v1#m"], {}, "gives no gradients"),
        (["planted:r", "planted:r"], {}, "named twice"),
        ([], {}, "neither a model nor a row"),
        (["planted:r"], {"audit": {"data": "x"}}, "belongs to no protocol"),
        (["planted:r"], {"rank_by": "rougeL:coco"}, "rank_by='rougeL:coco'"),
        (["planted:r"], {"corpus": {}}, "corpus has one key"),
    ],
)
def test_what_cannot_be_a_table_is_refused(
    tmp_path: Path, corpus: Path, models: list[str], changes: dict[str, Any], message: str
) -> None:
    config = LeaderboardConfig(protocol=protocol(tmp_path, corpus, **changes))
    with pytest.raises(ConfigError, match=message):
        make_leaderboard(models, config, tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_weights_are_known_by_their_content(tmp_path: Path) -> None:
    for name, value in (("one", b"a"), ("two", b"a"), ("three", b"b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(value)
        (tmp_path / name / "config.json").write_text("{}")
    one, two, three = (weights_hash(f"hf:{tmp_path / name}") for name in ("one", "two", "three"))
    assert one == two != three
    names = (f"{defence}:hf:{tmp_path / 'one'}" for defence in ("smoothed:0.1", "defended:jpeg:50", "defended:jpeg:60"))
    assert len({one, *map(weights_hash, names)}) == 4
