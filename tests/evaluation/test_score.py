from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import cxrlab
from cxrlab.core.errors import ConfigError, DataError, RunError, UnknownName
from cxrlab.core.runs import state
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.score import FLOORS, run_score, score
from cxrlab.evaluation.scored_runs import read_tallies
from cxrlab.metrics.base import Metric, default_names, mean_tally

pytestmark = pytest.mark.slow

REFERENCES = {
    "a": "There is a small left pleural effusion. No pneumothorax.",
    "b": "The heart is enlarged. The lungs are clear.",
    "c": "No acute cardiopulmonary process.",
    "d": "Moderate right pneumothorax. A pacemaker is in place.",
}
PREDICTIONS = {
    "a": "Small left pleural effusion. No pneumothorax is seen.",
    "b": "The lungs are clear.",
    "c": "No acute cardiopulmonary process.",
    "d": "Small left pleural effusion.",
}
ODD = [
    "",
    " ",
    None,
    float("nan"),
    "___",
    "XXXX",
    "🫁 🩻",
    "clear lungs " * 1_700,
    "1.x2.y",
    "NO EFFUSION",
    "\x00\x1b[31m",
]


def test_every_default_metric_has_value_interval_floors_and_denominator() -> None:
    sheet = score(REFERENCES, PREDICTIONS)
    assert tuple(sheet) == default_names() and len(sheet) == len(default_names()) and sheet.n == 4
    assert set(sheet.floors) == set(FLOORS)
    for name, found in sheet.items():
        assert found.n + found.undefined == 4, name
        assert all(set(values) == set(sheet) for values in sheet.floors.values())
        if not math.isnan(found.value):
            assert found.low <= found.value <= found.high or found.metric.by_pair is False or found.n < 4, name


def test_values_are_those_of_the_families() -> None:
    """Word for word the same report in one of four, ROUGE-L 1 there: the pair's value is the metric's own."""
    sheet = score(REFERENCES, PREDICTIONS, metrics=["rougeL:google"])
    assert sheet.studies[2].values["rougeL:google"] == 1.0
    mean = np.mean([study.values["rougeL:google"] for study in sheet.studies])
    assert sheet["rougeL:google"].value == pytest.approx(mean)


def test_identity_scores_what_the_card_says() -> None:
    sheet = score(REFERENCES, REFERENCES)
    for name, found in sheet.items():
        if found.metric.identity is not None and not math.isnan(found.value):
            assert found.value == pytest.approx(found.metric.identity), name
    assert all(not study.errors for study in sheet.studies)


def test_order_and_batch_change_no_value() -> None:
    """CIDEr's weights come from the whole set of references, so a part of it is another measurement."""
    metrics = ["coco", "findings", "errors", "rules", "rougeL:google", "bleu4:sacre"]
    whole = score(REFERENCES, PREDICTIONS, metrics=metrics)
    turned = score(dict(reversed(REFERENCES.items())), PREDICTIONS, metrics=metrics)
    for name in whole:
        assert turned[name].value == pytest.approx(whole[name].value, nan_ok=True), name
    for key in REFERENCES:
        alone = score({key: REFERENCES[key]}, {key: PREDICTIONS[key]}, metrics=metrics)
        before = next(study for study in whole.studies if study.pair.id == key)
        for name, value in alone.studies[0].values.items():
            assert name == "cider:coco" or value == pytest.approx(before.values[name], nan_ok=True), name


def test_counting_in_parts_changes_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven pairs at a time: rarity is still weighed by all references, floors and slices are those of the whole."""
    pairs = [(one, other) for one in [*ODD[:8], *REFERENCES.values()] for other in [*ODD[8:12], *PREDICTIONS.values()]]
    sides = [one for one, _ in pairs], [other for _, other in pairs]
    whole = score(*sides, metrics=["all"], trials=20)
    monkeypatch.setattr("cxrlab.evaluation.score.PART", 7)
    parts = score(*sides, metrics=["all"], trials=20)
    assert [study.errors for study in parts.studies] == [study.errors for study in whole.studies]
    for name, found in whole.items():
        other = parts[name]
        got = (other.value, other.low, other.high, other.n, other.undefined)
        assert got == pytest.approx((found.value, found.low, found.high, found.n, found.undefined), nan_ok=True), name
        assert [floor[name] for floor in parts.floors.values()] == pytest.approx(
            [floor[name] for floor in whole.floors.values()], nan_ok=True
        )
        assert [study.values[name] for study in parts.studies] == pytest.approx(
            [study.values[name] for study in whole.studies], nan_ok=True
        )
    assert parts.slices.keys() == whole.slices.keys()


def test_the_bytes_of_a_scored_run_do_not_depend_on_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts counted by other processes: scores, rows of every study and tallies are the same files."""
    monkeypatch.setattr("cxrlab.evaluation.score.PART", 3)
    monkeypatch.setattr("cxrlab.data.parallel.usable_cores", lambda: 2)
    for name, texts in (("references", REFERENCES), ("predictions", PREDICTIONS)):
        lines = [{"id": f"{key}-{k}", "report": text} for k in range(3) for key, text in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for workers in (1, 2):
        config = ScoreConfig(
            references=tmp_path / "references.jsonl",
            predictions=tmp_path / "predictions.jsonl",
            all=True,
            trials=20,
            workers=workers,
        )
        run_score(config, tmp_path / str(workers))
    for name in ("scores.json", "per_study.jsonl", "tallies.json", "tallies.npz"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_odd_texts_are_scored_with_a_status_and_never_dropped() -> None:
    """Every odd text against every other: nothing raises, nothing is lost, and every pair says what became of it."""
    pairs = [(one, other) for one in ODD for other in ODD]
    sheet = score([one for one, _ in pairs], [other for _, other in pairs], trials=10)
    assert sheet.n == len(pairs) == sum(sheet.statuses.values())
    assert {"scored", "no reference", "empty reference", "empty candidate", "missing candidate", "both empty"} == set(
        sheet.statuses
    )
    for name, found in sheet.items():
        assert found.n + found.undefined == len(pairs), name
        none = [study.values[name] for study in sheet.studies if study.pair.reference is None]
        assert all(map(math.isnan, none)), f"{name} has a value without a reference"
    json.dumps([sheet.to_json() is not None, [study.to_json() is not None for study in sheet.studies]])


def test_the_floor_of_a_control_is_its_score() -> None:
    """The constant normal report scored as a prediction gives the floor of that name."""
    from cxrlab.models.baselines import REPORTS

    sheet = score(REFERENCES, PREDICTIONS, metrics=["bleu1:coco", "errors.total", "clinical:rules"])
    normal = score(
        REFERENCES,
        dict.fromkeys(REFERENCES, REPORTS["normal"]),
        metrics=["bleu1:coco", "errors.total", "clinical:rules"],
    )
    assert sheet.floors["constant-normal"] == {name: found.value for name, found in normal.items()}
    lowest = min(values["errors.total"] for values in sheet.floors.values())
    best = sheet.best_floor("errors.total")
    assert best is not None and best[1] == lowest


def test_floors_slices_and_notes_where_they_cannot_be() -> None:
    bare = score(REFERENCES, PREDICTIONS, metrics=["bleu1:coco"], floors=False, slices=False)
    assert bare.floors == {} and bare.slices == {} and bare.best_floor("bleu1:coco") is None
    alone = score(["Clear."], ["Clear."], metrics=["bleu1:coco"])
    assert "shuffled" not in alone.floors and "shuffled" in alone.notes[0]
    assert math.isnan(alone["bleu1:coco"].low)


@pytest.mark.parametrize("reference", ODD)
@pytest.mark.parametrize("candidate", ODD)
def test_one_odd_pair_alone(reference: str | None, candidate: str | None) -> None:
    """Alone, nothing stands beside it to hide a division by zero."""
    sheet = score([reference], [candidate], trials=5)
    assert sheet.n == 1 and all(found.n + found.undefined == 1 for found in sheet.values())
    if sheet.studies[0].pair.reference is None:
        assert "no reference has a text" in sheet.notes[-1]


def test_metrics_are_chosen_by_name_family_and_pattern() -> None:
    assert list(score(REFERENCES, PREDICTIONS, metrics=["bleu4:coco"])) == ["bleu4:coco"]
    assert len(score(REFERENCES, PREDICTIONS, metrics=["bleu*"])) >= 5
    assert len(score(REFERENCES, PREDICTIONS, metrics=["all"], trials=10)) > len(default_names())
    with pytest.raises(UnknownName, match="bleu4:coco"):
        score(REFERENCES, PREDICTIONS, metrics=["bleu4:cocoo"])
    with pytest.raises(ConfigError, match="no metric was chosen"):
        score(REFERENCES, PREDICTIONS, metrics=[])
    assert list(score(REFERENCES, PREDICTIONS, metrics="bleu4:coco")) == ["bleu4:coco"]  # one name is a list of one


class Lengths:
    """A family of a user: words in the candidate."""

    metrics = (Metric("words", "lower", (0.0, math.inf), None, "none"),)

    def tallies(self, batch):
        return [mean_tally(self.metrics[0], [len(text.split()) for text in batch.candidates])]


def test_a_family_of_ones_own_is_scored_without_floors() -> None:
    sheet = score(REFERENCES, PREDICTIONS, metrics=["bleu1:coco"], extra=[Lengths()])
    assert sheet["words"].value == pytest.approx((8 + 4 + 4 + 4) / 4)
    assert sheet.best_floor("words") is None and sheet["words"].to_json()["range"] == [0.0, None]


def test_slices_are_drawn_as_the_whole_is(tmp_path: Path) -> None:
    """Half of the level makes a shorter interval, and other resamples another one, in slices as elsewhere."""
    rng = np.random.default_rng(3)
    rows = [
        {"id": f"s{k}", "sex": "FM"[k % 2], "reference": "Small effusion.", "candidate": "Small effusion." * int(flip)}
        for k, flip in enumerate(rng.random(40) < 0.5)
    ]
    file = tmp_path / "both.json"
    file.write_text(json.dumps(rows))

    def length(**how: float) -> float:
        part = score(file, metrics=["rougeL:google"], **how).slices["sex=F"]["rougeL:google"]  # type: ignore[arg-type]
        return part.high - part.low

    assert length(level=0.5) < length() != length(trials=200)


def test_slices_need_attributes(phantom: Path) -> None:
    """Phantoms know view, sex and age; every slice's n adds up to the whole for each attribute."""
    test = {study.id: "Clear." for study in cxrlab.load_corpus(phantom).studies("test")}
    sheet = score(phantom, test, metrics=["clinical:rules"])
    sexes = [sheet.slices[key]["clinical:rules"].n for key in sheet.slices if key.startswith("sex=")]
    assert sum(sexes) == sheet["clinical:rules"].n
    assert {key.split("=")[0] for key in sheet.slices} == {"view", "sex", "age", "device"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    for name, texts in {"r.json": REFERENCES, "p.json": PREDICTIONS}.items():
        (tmp_path / name).write_text(json.dumps(texts))
    return tmp_path / "r.json", tmp_path / "p.json"


def test_a_run_holds_scores_studies_and_counts(files: tuple[Path, Path], tmp_path: Path) -> None:
    config = ScoreConfig(*files)
    found = run_score(config, tmp_path / "run")
    stored = json.loads((tmp_path / "run/scores.json").read_text())
    assert stored == found and stored["n"] == 4 and stored["statuses"] == {"scored": 4}
    one = stored["metrics"]["bleu4:coco"]
    assert {"value", "low", "high", "n", "undefined", "direction", "range", "signature"} <= set(one)
    assert set(stored["floors"]) == set(FLOORS) and stored["controls"] == {"image_dependence": {}}
    lines = [json.loads(line) for line in (tmp_path / "run/per_study.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == list(REFERENCES)
    for line in lines:
        assert set(line["values"]) == set(stored["metrics"])
        for error in line["errors"]:
            assert {"kind", "significant", "reference_span", "candidate_span"} <= set(error)
    tallies = read_tallies(tmp_path / "run").tallies
    assert tallies["bleu4:coco"].value == pytest.approx(one["value"])
    assert state(tmp_path / "run") == "finished"


def test_a_finished_run_is_left_and_one_of_other_texts_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    config, out = ScoreConfig(*files, metrics=("bleu1:coco",)), tmp_path / "run"
    first = run_score(config, out)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert run_score(config, out) == first
    assert before == {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    files[1].write_text(json.dumps({**PREDICTIONS, "a": "Something else."}))
    with pytest.raises(RunError, match="other texts"):
        run_score(config, out)


@pytest.mark.parametrize("content", ["[]", "{}", "3"])
def test_a_finished_run_whose_scores_are_damaged_is_refused(
    files: tuple[Path, Path], tmp_path: Path, content: str
) -> None:
    config, out = ScoreConfig(*files, metrics=("bleu1:coco",)), tmp_path / "run"
    run_score(config, out)
    (out / "scores.json").write_text(content)
    with pytest.raises(DataError, match="scores.json is damaged"):
        run_score(config, out)


def test_the_same_run_twice_has_the_same_bytes(files: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("one", "two"):
        run_score(ScoreConfig(*files), tmp_path / name)
    for file in ("scores.json", "per_study.jsonl", "tallies.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_a_mistake_leaves_no_folder(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        run_score(ScoreConfig(*files, metrics=("nonsense",)), tmp_path / "run")
    with pytest.raises(DataError):
        run_score(ScoreConfig(files[0], tmp_path / "nothing.json"), tmp_path / "run")
    with pytest.raises(DataError):
        run_score(ScoreConfig(*files, graphs=tmp_path / "no_graphs.json"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_scores_do_not_go_into_the_folder_of_the_predictions(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "predictions.jsonl").write_text('{"id": "a", "report": "x"}\n')
    with pytest.raises(RunError, match="choose another folder for the scores"):
        run_score(ScoreConfig(*files), tmp_path / "run")


def test_without_a_folder_nothing_is_written(files: tuple[Path, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert run_score(ScoreConfig(*files, metrics=("bleu1:coco",)))["n"] == 4
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 0}, "trials=0"),
        ({"seed": -1}, "seed=-1"),
        ({"level": 1.0}, "level=1.0"),
        ({"all": True, "metrics": ("bleu1:coco",)}, "contradict"),
        ({"chexbert": Path("x")}, "--chexbert needs --bert"),
        ({"bert": Path("x")}, "--bert needs --chexbert"),
        ({"layer": 0}, "layer=0"),
    ],
)
def test_settings_are_checked(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ScoreConfig(Path("r"), Path("p"), **changes)  # type: ignore[arg-type]


@pytest.mark.real_data
def test_published_scores_of_real_reports(real_data: Path) -> None:
    """382 references and predictions with coco-caption's own figures, straight from the two files."""
    folder = real_data / "metric_vectors" / "iu_run_a"
    sheet = score(folder / "refs.json", folder / "preds.json", metrics=["coco"], floors=False, trials=10)
    expected = json.loads((folder / "scores.json").read_text())
    for ours, theirs in {
        "bleu1:coco": "Bleu_1",
        "bleu4:coco": "Bleu_4",
        "rougeL:coco": "ROUGE_L",
        "cider:coco": "CIDEr",
    }.items():
        assert sheet[ours].value == pytest.approx(expected[theirs], abs=1e-6)
