"""The study of alignment: what is planned and shared, what the table says, and a whole study on tiny models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import write_json
from cxrlab.core.json_values import dumps
from cxrlab.core.runs import state
from cxrlab.render.page import write_page
from cxrlab.studies.engine import Part, run_recipe
from cxrlab.studies.over_seeds import excludes_zero
from cxrlab.studies.preference_study import PreferenceStudy, PreferenceStudyConfig, alignment_table
from cxrlab.studies.run_study import find_study, read_study

pytestmark = pytest.mark.slow

AUDITED = {"harden": 1, "robustness": 1}
KTO = {"changes": "KTO.", "train": {"loss": {"name": "kto"}}}
BASE: dict[str, Any] = {
    "corpora": {"drawn": {"phantom": {"n": 60, "size": 32, "seed": 3, "workers": 1, "masks": False}}},
    "data": "drawn",
    "start": {
        "encoder": "fresh:tiny",
        "language_model": "fresh:tiny",
        "lora_rank": 2,
        "optimisation": {"steps": 1, "batch_size": 2},
    },
    "sample": {"n": 6, "answers": 3, "max_new_tokens": 12, "batch_size": 6},
    "judge": {"judge": "rougeL:google"},  # words at random share words with a reference, and no finding
    "pair": {"allow_cut": True},  # twelve tokens say nothing to its end
    "train": {
        "lora_rank": 2,
        "validation": {"n": 2, "max_new_tokens": 6},
        "measure": {"n": 4, "max_new_tokens": 6, "control_studies": 0},
        "optimisation": {"steps": 2, "batch_size": 2, "max_length": 400, "learning_rate": 0.05},
    },
    "variants": {"dpo": {"changes": "DPO."}, "kto": KTO},
    "seeds": (1,),
    "metrics": ("rougeL:google", "findings.f1.side"),
}


def config(**changes: Any) -> PreferenceStudyConfig:
    return PreferenceStudyConfig(**{**BASE, **changes})


def planned(out: Path, **changes: Any) -> PreferenceStudy:
    return PreferenceStudy(config(**changes), out)


def run_preference_study(settings: PreferenceStudyConfig, out: Path) -> Path:
    return run_recipe(PreferenceStudy(settings, out))


def before_of(study: PreferenceStudy) -> dict[str, str]:
    """Run folder of each training → reports of its start."""
    return {trial.parts["train"]: trial.parts["before"] for trial in study.trials}


def variants(**rows: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): {"changes": "Something.", **row} for name, row in rows.items()}


# --- what is planned -------------------------------------------------------------------------------------------------


def test_what_variants_share_is_made_once(tmp_path: Path) -> None:
    """Another loss has the same pairs, other pairs have the same rewards, another judge has the same reports."""
    rows = variants(
        a={},
        loss={"train": {"loss": {"name": "ipo"}}},
        fewer={"pair": {"margin": 0.2}},
        judge={"judge": {"length_control": True}},
    )
    found = planned(tmp_path, variants=rows)
    assert [part.folder.removeprefix("seed1/") for part in found.parts] == [
        *("start", "sample", "judge/a", "pair/a", "before/a", "train/a", "train/loss", "pair/fewer", "train/fewer"),
        *("judge/judge", "pair/judge", "train/judge"),
    ]
    assert [trial.parts["pair"] for trial in found.trials] == [
        f"seed1/pair/{name}" for name in ("a", "a", "fewer", "judge")
    ]
    assert set(before_of(found).values()) == {"seed1/before/a"}  # what the start wrote, once for all


def test_each_part_starts_from_the_one_before(tmp_path: Path) -> None:
    start, sample, judge, pair, train = (part.config for part in planned(tmp_path).parts[:5])
    home, model = tmp_path / "seed1", f"hf:{tmp_path}/seed1/start/checkpoint"
    assert start.data == sample.data == judge.data == train.data == tmp_path / "corpora" / "drawn"
    assert sample.model == train.start == model and sample.split == "train"
    assert judge.candidates == (home / "sample",) and pair.rewards == home / "judge/dpo"
    assert train.pairs == home / "pair/dpo" and train.measure.split == "test"
    assert train.measure.metrics == config().metrics


def test_a_model_that_is_there_is_not_trained(tmp_path: Path) -> None:
    found = planned(tmp_path, start={"model": "builtin:reporter"})
    assert [part.kind for part in found.parts] == ["sample", "judge", "pair", "before", "train", "train"]
    assert found.parts[0].config.model == found.parts[-1].config.start == "builtin:reporter"


def test_a_part_waits_for_those_that_it_uses(tmp_path: Path) -> None:
    """The second training finds what the start wrote; other pairs need another judgement of the same candidates."""
    found = planned(tmp_path, variants=variants(a={}, b={"judge": {"length_control": True}}))
    assert {part.folder: part.needs for part in found.parts} == {
        "seed1/start": (),
        "seed1/sample": ("seed1/start",),
        "seed1/judge/a": ("seed1/sample",),
        "seed1/pair/a": ("seed1/judge/a",),
        "seed1/before/a": ("seed1/start",),
        "seed1/train/a": ("seed1/pair/a", "seed1/before/a"),
        "seed1/judge/b": ("seed1/sample",),
        "seed1/pair/b": ("seed1/judge/b",),
        "seed1/train/b": ("seed1/pair/b", "seed1/before/a"),
    }


def test_the_seed_reaches_every_part(tmp_path: Path) -> None:
    found = planned(tmp_path, seeds=(3, 5))
    for seed in (3, 5):
        start, sample, judge, pair, _, train, _ = (part.config for part in found.parts if part.seed == seed)
        assert {start.optimisation.seed, sample.seed, judge.seed, pair.seed, train.optimisation.seed} == {seed}


def test_those_that_are_measured_otherwise_have_a_start_of_their_own(tmp_path: Path) -> None:
    found = planned(tmp_path, variants=variants(a={}, b={"train": {"measure": {"n": 3}}}))
    assert before_of(found) == {"seed1/train/a": "seed1/before/a", "seed1/train/b": "seed1/before/b"}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("preference_phantom", {"start": 1, "sample": 1, "judge": 6, "pair": 6, "before": 1, "train": 11}),
        ("preference_openi", {"sample": 1, "judge": 2, "pair": 2, "before": 1, "train": 3}),
        (
            "preference_robustness",
            {"start": 1, "sample": 1, "judge": 3, "pair": 3, "before": 1, "train": 10, **AUDITED, "finetune": 1},
        ),
        (
            "preference_robustness_cpu",
            {"start": 1, "sample": 1, "judge": 1, "pair": 1, "before": 1, "train": 3, **AUDITED},
        ),
        (
            "preference_robustness_openi",
            {"start": 1, "sample": 1, "judge": 3, "pair": 3, "before": 1, "train": 7, **AUDITED},
        ),
    ],
)
def test_the_shipped_studies_can_be_planned(tmp_path: Path, name: str, kinds: dict[str, int]) -> None:
    """Losses share the pairs of the plain judge; a judge of its own has pairs of its own."""
    one = read_study(find_study(name)).config
    found = PreferenceStudy(one, tmp_path)
    assert Counter(part.kind for part in found.parts if part.seed == 2) == kinds
    assert len(found.parts) == len(one.seeds) * sum(kinds.values())
    assert len(set(before_of(found).values())) == len(one.seeds)


# --- what is refused -------------------------------------------------------------------------------------------------


@every_row(
    ("changes", "message"),
    [
        ({"variants": {}}, "variants has 0 rows"),
        ({"variants": variants(a={"trian": {}})}, "Did you mean 'train'"),
        ({"variants": {"a/b": {"changes": "x"}}}, "letters, digits"),
        ({"data": "drown"}, "Did you mean 'drawn'"),
        ({"seeds": (1, 1)}, "different whole numbers"),
        ({"at_once": 0}, "at_once=0"),
        ({"metrics": ()}, "name at least one"),
        ({"metrics": ("findings.f1", "findings.f1")}, "each once"),
        ({"start": {}}, "start is empty"),
        ({"start": {"model": "builtin:reporter", "lora_rank": 2}}, "'lora_rank'"),
        ({"start": {"model": "stub:normal"}}, "name one with weights"),
    ],
)
def test_bad_settings_are_refused_before_the_study_starts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample": {"answers": 0}}, "sample: answers=0"),
        ({"sample": {"answers": 1}}, "answers=1 leaves nothing to choose from"),
        ({"sample": {"split": "test"}}, "sample: 'split' is set by the study itself"),
        ({"train": {"measure": {"metrics": ["bleu4:coco"]}}}, "'measure.metrics' is set by the study itself"),
        ({"train": {"measure": 3}}, "'measure' is a group of settings"),
        ({"train": {"measure": {"n": 0}}}, "measures nothing"),
        ({"train": {"validation": {"judge": "green:rule"}}}, "train of 'dpo': there is no judge 'green:rule'"),
        ({"judge": {"judge": "green:rule"}}, "judge of 'dpo': there is no judge 'green:rule'"),
        ({"judge": {"judge": "errors:rules", "length_control": True}}, "no reward that could be divided"),
        ({"start": {**BASE["start"], "data": "drown"}}, "start: there is no corpus 'drown'"),
        ({"metrics": ("findings.f1.sid",)}, "findings.f1.sid"),
        ({"metrics": ("bleu*",)}, "one by one"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, **changes)


def test_wrong_settings_of_several_parts_are_reported_at_once_and_once(tmp_path: Path) -> None:
    """Two seeds would say the same twice."""
    rows = variants(a={"pair": {"pairs": 0}}, b={"train": {"loss": {"name": "dpo", "gamma": 3}}})
    with pytest.raises(ConfigError, match="3 problems") as caught:
        run_preference_study(config(sample={"top_p": 3}, variants=rows, seeds=(1, 2)), tmp_path / "study")
    for said in ("sample: top_p=3", "pair of 'a': pairs=0", "train of 'b': in 'loss': gamma=3"):
        assert str(caught.value).count(said) == 1
    assert not (tmp_path / "study").exists()


def test_a_model_that_is_not_there_is_reported_before_anything_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(DataError, match="nowhere"):
        run_preference_study(config(start={"model": f"hf:{tmp_path}/nowhere"}), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_split_without_a_study_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    few = {"drawn": {"phantom": {"n": 3, "size": 32, "workers": 1, "masks": False}}}
    with pytest.raises(DataError, match="no study in its (val|test) split"):
        run_preference_study(config(corpora=few), tmp_path / "study")
    assert not list((tmp_path / "study").glob("seed*"))


# --- what the table says ---------------------------------------------------------------------------------------------


def trial(variant: str, seed: int, change: float | None, low: float = -1.0, **more: Any) -> dict[str, Any]:
    """A line of trials.jsonl with one metric, which was 0.5 before."""
    after = None if change is None else 0.5 + change
    measured = {
        "n": 10,
        "patients": 8 + seed,
        "before": {"m": {"value": 0.5}},
        "after": {"m": {"value": after}},
        "difference": {"m": {"difference": change, "low": low, "high": 1.0, "direction": "lower"}},
        "length": {"reference": 40.0, "words": {"before": 20.0, "after": 50.0 if seed == 1 else 30.0}},
        "selection": {"step": 10 * seed, "of": 30},
        **more,
    }
    pairs = {"kept": 100 * seed, "chosen_longer": 0.25 * seed}
    return {"variant": variant, "seed": seed, "pairs": pairs, "preference": measured}


def by_hand(*trials: dict[str, Any], **changes: Any) -> dict[str, Any]:
    rows = {"dpo": {"changes": "DPO.", "published": {"GREEN": 0.387}}}
    two = config(seeds=(1, 2), metrics=("m",), variants=rows, **changes)
    return alignment_table(two.chosen(), two.seeds, two.metrics, trials)


def test_the_table_by_hand() -> None:
    """Changes of 0.1 and 0.3: their mean is 0.2; one seed's interval excludes zero."""
    asked = {
        "accuracy": {"before": 0.5, "after": 0.75, "difference": 0.25, "low": 0.0, "high": 0.5},
        "calibration_error": {"before": 0.25, "after": 0.125},
    }
    costs = {"drift": {"kl_report": 6.0, "kl_token": 0.5}, "questions": asked}
    found = by_hand(trial("dpo", 1, 0.1, **costs), trial("dpo", 2, 0.3, low=0.2, **costs))
    assert found["directions"] == {"m": "lower"} and found["n"] == 10 and found["patients"] == 10
    row = found["variants"]["dpo"]
    gap = row["metrics"]["m"]["difference"]
    assert gap["values"] == pytest.approx([0.1, 0.3]) and gap["mean"] == pytest.approx(0.2)
    assert gap["high"] - 0.2 == pytest.approx(12.706 * 0.1, rel=1e-3)  # Student's, one degree of freedom
    assert [one["excludes_zero"] for one in row["metrics"]["m"]["by_seed"]] == [False, True]
    assert row["metrics"]["m"]["before"]["mean"] == 0.5 and row["metrics"]["m"]["after"]["mean"] == pytest.approx(0.7)
    assert row["words"]["after"]["mean"] == 40.0 and row["words"]["reference"]["mean"] == 40.0
    assert row["length_ratio"]["before"]["mean"] == 0.5 and row["length_ratio"]["after"]["values"] == [1.25, 0.75]
    assert row["drift"]["kl_report"]["mean"] == 6.0 and row["accuracy"]["difference"]["mean"] == 0.25
    assert [one["excludes_zero"] for one in row["accuracy"]["by_seed"]] == [False, False]
    assert row["calibration_error"]["difference"]["mean"] == -0.125
    assert row["pairs"]["mean"] == 150 and row["chosen_longer"]["values"] == [0.25, 0.5]
    assert row["step"]["values"] == [10, 20] and row["steps"]["mean"] == 30
    assert row["published"] == {"GREEN": 0.387}


def test_what_was_not_measured_is_unknown_and_not_zero() -> None:
    """No drift, no questions, and a metric that one seed has no value for."""
    row = by_hand(trial("dpo", 1, None), trial("dpo", 2, 0.3))["variants"]["dpo"]
    assert row["drift"]["kl_report"]["mean"] is None and row["accuracy"]["difference"]["seeds"] == 0
    assert row["accuracy"]["by_seed"][0]["excludes_zero"] is None
    gap = row["metrics"]["m"]["difference"]
    assert gap["values"] == [None, pytest.approx(0.3)] and gap["seeds"] == 1 and gap["low"] is None


@pytest.mark.parametrize(
    ("low", "high", "excludes"), [(0.1, 0.2, True), (-0.2, -0.1, True), (0.0, 0.1, False), (float("nan"), 0.1, None)]
)
def test_an_interval_that_touches_zero_does_not_exclude_it(low: float, high: float, excludes: bool | None) -> None:
    assert excludes_zero(low, high) is excludes


# --- what the page shows ---------------------------------------------------------------------------------------------


def shown(folder: Path, found: Any) -> str:
    folder.mkdir()
    (folder / "config.yaml").write_text("study: preference\n")
    (folder / "status.json").write_text('{"state": "finished"}')
    write_json(folder / "preferences.json", found)
    return write_page([folder]).read_text()


def test_the_page_shows_every_variant_and_no_markup_of_theirs(tmp_path: Path) -> None:
    found = by_hand(trial("dpo", 1, 0.1), trial("dpo", 2, 0.3, low=0.2))
    row = found["variants"].pop("dpo")
    found["variants"] = {"dpo": row, "<b>more": {**row, "changes": "All <i>of</i> it.", "published": {"<u>": 1.5}}}
    page = shown(tmp_path / "a", found)
    assert "<h2>Alignment, over seeds</h2>" in page and "<b>dpo</b>" in page and "&lt;b&gt;more" in page
    assert "All &lt;i&gt;of&lt;/i&gt; it." in page and "<b>more" not in page and "&lt;u&gt;" in page
    assert "+0.200" in page and "clear in 1 of 2" in page and "20.0 → 40.0" in page and "1.00 of that" in page
    assert "Published figures" in page and "m\N{NO-BREAK SPACE}↓" in page and "All metrics and seeds" in page


def test_a_page_without_figures_has_no_section(tmp_path: Path) -> None:
    assert "over seeds</h2>" not in shown(tmp_path / "a", {"metrics": [], "variants": {}})


def test_a_word_in_place_of_a_number_is_refused(tmp_path: Path) -> None:
    found = by_hand(trial("dpo", 1, 0.1), trial("dpo", 2, 0.3))
    found["variants"]["dpo"]["words"]["after"]["mean"] = "many"
    with pytest.raises(DataError, match=r"preferences.json.*words.after.mean"):
        shown(tmp_path / "a", found)


# --- whole studies on tiny models ------------------------------------------------------------------------------------

Noted = Callable[..., Any]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Steps this small are faster alone, here and in processes that are started."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Iterator[tuple[Path, list[str]]]:
    """A study made without a stop, and the folders into which something was made."""
    from cxrlab.preference import measure_alignment

    out, made = tmp_path_factory.mktemp("aligned") / "study", []

    def noted(true: Noted, folder: Callable[..., Path]) -> Noted:
        def call(*given: Any) -> Any:
            if state(folder(*given)) != "finished":
                made.append(str(folder(*given).relative_to(out)))
            return true(*given)

        return call

    with pytest.MonkeyPatch.context() as patch:
        make, write = PreferenceStudy.make, measure_alignment.generate
        patch.setattr(PreferenceStudy, "make", noted(make, lambda study, part: study.out / part.folder))
        patch.setattr(measure_alignment, "generate", noted(write, lambda asked, folder: folder))
        run_preference_study(config(), out)
    yield out, made


@pytest.mark.slow
def test_a_whole_study_makes_every_part_once_and_ends_with_a_page(straight: tuple[Path, list[str]]) -> None:
    out, made = straight
    assert sorted(made) == [
        *(
            "seed1/before/dpo",
            "seed1/before/dpo/before",
            "seed1/judge/dpo",
            "seed1/pair/dpo",
            "seed1/sample",
            "seed1/start",
        ),
        *("seed1/train/dpo", "seed1/train/dpo/measured/after", "seed1/train/kto", "seed1/train/kto/measured/after"),
    ]
    lines = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["seed1/dpo", "seed1/kto"]
    assert lines[1]["preference"] == json.loads((out / "seed1/train/kto/preference.json").read_text())
    found = json.loads((out / "preferences.json").read_text())
    assert list(found["variants"]) == ["dpo", "kto"] and found["n"] == 4
    assert found["variants"]["dpo"]["pairs"]["mean"] == lines[0]["pairs"]["kept"] > 0
    page = (out / "page.html").read_text()
    assert "<h2>Alignment, over seeds</h2>" in page and "<h2>Before and after alignment</h2>" in page
    assert str(out) not in dumps(found)


@pytest.mark.slow
def test_a_study_that_was_stopped_ends_with_the_same_table(
    straight: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the last training, it makes nothing again that is there."""
    true, out = PreferenceStudy.make, tmp_path / "study"

    def stops(study: PreferenceStudy, part: Part) -> None:
        if part.folder == "seed1/train/kto":
            raise KeyboardInterrupt
        true(study, part)

    with monkeypatch.context() as patch:
        patch.setattr(PreferenceStudy, "make", stops)
        with pytest.raises(KeyboardInterrupt):
            run_preference_study(config(), out)
    assert state(out) == "interrupted" and not (out / "preferences.json").exists()
    there = {path: path.stat().st_mtime_ns for path in out.glob("seed1/**/*.jsonl")}
    page = run_preference_study(config(), out)
    assert there and {path: path.stat().st_mtime_ns for path in there} == there
    assert (out / "preferences.json").read_bytes() == (straight[0] / "preferences.json").read_bytes()
    assert run_preference_study(config(), out) == page  # a finished one is shown again


@pytest.mark.slow
@pytest.mark.full
def test_parts_side_by_side_come_to_the_same(straight: tuple[Path, list[str]], tmp_path: Path) -> None:
    run_preference_study(config(at_once=2), tmp_path / "study")
    assert (tmp_path / "study/preferences.json").read_bytes() == (straight[0] / "preferences.json").read_bytes()


@pytest.mark.slow
def test_a_judge_that_prefers_nothing_is_named(straight: tuple[Path, list[str]], tmp_path: Path) -> None:
    """No two rewards differ by 2."""
    start = {"model": f"hf:{straight[0] / 'seed1/start/checkpoint'}"}
    with pytest.raises(
        DataError, match=r"^seed1/pair/dpo: rougeL:google prefers none of 18 reports of 6 studies.*below_margin \d"
    ):
        run_preference_study(config(start=start, pair={"margin": 2.0}), tmp_path / "study")
