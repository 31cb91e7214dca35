"""The plan of a study of extraction: what is made, once, from which folders, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.config import Alignment, Shares
from cxrlab.studies.corpora import pool_with_folders
from cxrlab.studies.engine import run_recipe
from cxrlab.studies.extraction_study import ExtractionStudy, ExtractionStudyConfig
from cxrlab.studies.run_study import find_study, read_study

pytestmark = pytest.mark.slow

BASE: dict[str, Any] = {
    "corpora": {
        "drawn": {"phantom": {"n": 40, "size": 32, "seed": 3}},
        "out_of_domain": {"out_of_domain": {"n": 6, "size": 32}},
    },
    "data": "drawn",
    "models": {"taught": {"start": "builtin:reporter", "extra_corpora": {"out_of_domain": {"data": "out_of_domain"}}}},
    "extract": {"victim": "made:taught", "budget": 30, "rounds": 3, "n": 5},
    "variants": {
        "knockoff": {"changes": "As they are.", "extract": {"method": "knockoff"}},
        "ada": {"changes": "Moved."},
    },
    "seeds": (1,),
    "metrics": ("findings.f1",),
}


def config(**changes: Any) -> ExtractionStudyConfig:
    return ExtractionStudyConfig(**{**BASE, **changes})


def planned(out: Path, **changes: Any) -> ExtractionStudy:
    return ExtractionStudy(config(**changes), out)


def variants(**rows: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): {"changes": "Something.", "extract": row} for name, row in rows.items()}


# --- what is planned -------------------------------------------------------------------------------------------------


def test_models_are_made_once_and_a_victim_writes_once_a_seed(tmp_path: Path) -> None:
    found = planned(tmp_path, seeds=(3, 5))
    assert [part.folder for part in found.parts] == [
        "models/taught",
        *(f"seed{seed}/{name}" for seed in (3, 5) for name in ("victims/knockoff", "extract/knockoff", "extract/ada")),
    ]
    trial = found.find_trial("ada", 5)
    assert trial.id == "seed5/ada" and trial.parts == {
        "extract": "seed5/extract/ada",
        "victim": "seed5/victims/knockoff",
    }


def test_an_attack_waits_for_its_victim_and_for_the_models_that_it_names(tmp_path: Path) -> None:
    rows = variants(a={}, b={"victim": "stub:normal", "surrogate": "made:taught"}, c={"victim": "stub:normal"})
    needs = {part.folder: part.needs for part in planned(tmp_path, variants=rows).parts}
    assert needs == {
        "models/taught": (),
        "seed1/victims/a": ("models/taught",),
        "seed1/extract/a": ("models/taught", "seed1/victims/a"),
        "seed1/victims/b": (),
        "seed1/extract/b": ("models/taught", "seed1/victims/b"),
        "seed1/extract/c": ("seed1/victims/b",),
    }


def test_the_seed_and_the_metrics_reach_every_attack(tmp_path: Path) -> None:
    found = planned(tmp_path, seeds=(3, 5))
    for seed in (3, 5):
        configs = [part.config for part in found.parts if part.seed == seed and part.kind != "models"]
        assert {(one.seed, one.measure.seed, one.measure.metrics) for one in configs} == {
            (seed, seed, ("findings.f1",))
        }
        runs = {part.config.victim_run for part in found.parts if part.seed == seed and part.kind == "extract"}
        assert runs == {tmp_path / f"seed{seed}/victims/knockoff"}


def test_equal_attacks_are_made_once_and_other_ways_of_measuring_have_a_victim_of_their_own(tmp_path: Path) -> None:
    rows = variants(a={}, same={"rounds": 3}, fewer={"n": 4}, wider={"alignment": {"eps": "0.3"}})
    found = planned(tmp_path, variants=rows)
    assert [trial.parts["extract"].removeprefix("seed1/extract/") for trial in found.trials] == [
        "a",
        "a",
        "fewer",
        "wider",
    ]
    assert [trial.parts["victim"].removeprefix("seed1/victims/") for trial in found.trials] == ["a", "a", "fewer", "a"]


def test_names_of_corpora_and_models_become_folders(tmp_path: Path) -> None:
    rows = variants(
        a={"pool": "mix:0.1:corpus:drawn@train+scenes", "surrogate": "parts:made:taught+builtin:general"},
        b={"defence": "gate", "defence_settings": {"benign": "drawn"}},
    )
    models = {**BASE["models"], "later": {"start": "made:taught", "data": "out_of_domain"}}
    found = planned(tmp_path, variants=rows, models=models)
    taught, corpora = f"hf:{tmp_path}/models/taught/checkpoint", tmp_path / "corpora"
    one, two = (part.config for part in found.parts if part.kind == "extract")
    assert one.victim == taught and one.surrogate == f"parts:{taught}+builtin:general"
    assert one.pool == f"mix:0.1:corpus:{corpora}/drawn@train+scenes" and one.data == corpora / "drawn"
    assert two.defence_settings.benign == corpora / "drawn"
    first, second = (part for part in found.parts if part.kind == "models")
    assert first.config.data == corpora / "drawn" and first.config.extra_corpora["out_of_domain"]["data"] == str(
        corpora / "out_of_domain"
    )
    assert second.config.start == taught and second.needs == ("models/taught",)


@pytest.mark.parametrize("pool", ["scenes", "noise", "folder:a/corpus/b", "mix:0.5:cifar:x@test+noise"])
def test_other_pools_stay_as_they_are(pool: str) -> None:
    assert pool_with_folders(pool, {}, "here") == pool


def test_the_pictures_of_a_corpus_are_a_folder_too() -> None:
    folders = {"seen": Path("runs/seen"), "drawn": Path("runs/drawn")}
    assert pool_with_folders("folder:seen", folders, "here") == "folder:runs/seen/images"
    assert pool_with_folders("mix:0.1:corpus:drawn@train+folder:seen", folders, "here") == (
        "mix:0.1:corpus:runs/drawn@train+folder:runs/seen/images"
    )


def test_detectors_watch_the_first_seed_and_defences_meet_one_attack_one_by_one(tmp_path: Path) -> None:
    found = planned(
        tmp_path,
        seeds=(3, 5),
        detect={"variants": ["knockoff", "ada"], "batch_size": 4},
        defend={"variant": "knockoff", "defences": ["gate", "watermark"], "settings": {"quota": 9}},
    )
    detect, gate, mark = (part for part in found.parts if part.kind in ("detect", "defend"))
    assert detect.config.stream == (tmp_path / "seed3/extract/knockoff", tmp_path / "seed3/extract/ada")
    assert detect.config.benign == tmp_path / "corpora/drawn" and detect.needs[1] == "seed3/extract/ada"
    assert (gate.folder, mark.folder) == ("seed3/defend/gate", "seed3/defend/watermark")
    assert gate.config.defences == ("gate",) and gate.config.method == "knockoff" and gate.config.budget == 30
    assert (
        gate.config.victim == f"hf:{tmp_path}/models/taught/checkpoint" and gate.needs[-1] == "seed3/extract/knockoff"
    )
    assert gate.config.decoding.strategy == "diverse"  # the victim's own
    assert mark.config.settings.key_file == tmp_path / "watermark.key" and mark.config.settings.quota == 9


def shipped(name: str, out: Path, quick: bool = False) -> tuple[ExtractionStudyConfig, ExtractionStudy]:
    """Of one seed; the others have the same parts but for models, detectors and defences, which are made once."""
    one = replace(read_study(find_study(name), quick).config, seeds=(1,))
    return one, ExtractionStudy(one, out)


@pytest.fixture(scope="module")
def ada_steal(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExtractionStudyConfig, ExtractionStudy]:
    return shipped("ada_steal", tmp_path_factory.mktemp("shipped"))


Shipped = tuple[ExtractionStudyConfig, ExtractionStudy]


def test_the_shipped_study_makes_each_thing_once(ada_steal: Shipped) -> None:
    config, found = ada_steal
    kinds = {"models": 2, "victims": 2, "extract": 42}
    assert Counter(part.kind for part in found.parts) == kinds
    assert config.contrasts[0] == ("A-ada-published", "A-knockoff")
    rows = {name for table in config.checked_tables().values() for name in table.variants}
    assert rows == set(config.variants)  # nothing is made that no table shows


@pytest.mark.parametrize(
    ("name", "quick", "kinds"),
    [
        ("ada_steal", True, {"models": 1, "victims": 1, "extract": 6}),
        ("ada_steal_cpu", False, {"models": 1, "victims": 1, "extract": 7}),
        ("extraction_defences", False, {"models": 1, "victims": 2, "extract": 6, "detect": 1, "defend": 5}),
        ("extraction_defences", True, {"models": 1, "victims": 1, "extract": 3, "detect": 1, "defend": 1}),
        ("fair_attacker", False, {"oracle": 1, "models": 2, "victims": 2, "extract": 17, "transfer": 2}),
        ("fair_attacker", True, {"models": 2, "victims": 2, "extract": 3, "transfer": 2}),
        ("ada_steal_openi", False, {"victims": 1, "extract": 7, "detect": 1}),
        ("input_transformations", False, {"models": 1, "victims": 1, "extract": 1, "defend": 4}),
    ],
)
def test_the_other_shipped_studies_can_be_planned(
    tmp_path: Path, name: str, quick: bool, kinds: dict[str, int]
) -> None:
    _, found = shipped(name, tmp_path, quick)
    assert Counter(part.kind for part in found.parts) == kinds


def test_the_rows_of_the_paper_are_its_method_to_the_letter(ada_steal: Shipped) -> None:
    config, found = ada_steal
    attacks = {name: found.part(found.find_trial(name, 1).parts["extract"]).config for name in config.variants}
    for surrogate in "AB":
        knockoff, paper, descending, ceiling = (
            attacks[f"{surrogate}-{name}"] for name in ("knockoff", "ada-published", "ada-descending", "in-domain")
        )
        assert (paper.budget, paper.rounds, paper.colour, paper.oracle) == (1500, 3, "rgb", "rules")
        assert paper.shares == Shares(0.8, 0.1, 0.1)
        assert paper.alignment == Alignment("0.2", 1, "away", "original", None, 250)
        assert (paper.fitting.schedule, paper.fitting.wordings, paper.fitting.repeats) == ("constant", 1, None)
        for decoding in (paper.victim_decoding, paper.surrogate_decoding):
            assert (decoding.strategy, decoding.beams, decoding.groups) == ("diverse", 18, 3)
            assert (decoding.diversity_penalty, decoding.max_new_tokens) == (0.2, 512)
        assert replace(descending, alignment=paper.alignment) == replace(paper, map_sentences=0)
        # The ceiling is honest when it differs from Knockoff in its images alone.
        assert replace(ceiling, method="knockoff", pool=knockoff.pool, map_sentences=300) == knockoff
        assert replace(paper, method="knockoff") == knockoff
    # Pools and radii differ from the published attack in these alone.
    for name in ("scenes", "tenth", "half", "radiographs", "noise"):
        one = attacks[f"A-{name}-05"]
        assert one.alignment.eps == "0.05"
        assert (
            replace(one, pool="scenes", alignment=attacks["A-ada-published"].alignment, map_sentences=300)
            == (attacks["A-ada-published"])
        )
    assert attacks["A-no-oracle"].oracle == "none" and attacks["A-weak"].oracle == "rules-weak"
    printed = attacks["A-ada-equation-7"]
    assert (printed.transcript, printed.alignment.picture) == ("replace", "last")


def test_published_figures_stand_beside_the_method_of_the_paper_alone(ada_steal: Shipped) -> None:
    config, found = ada_steal
    rows = {name for name, variant in config.chosen().items() if variant.published}
    rows |= {row for table in config.checked_tables().values() for row in table.published if row in config.variants}
    assert {"A-ada-published", "B-ada-published", "second-ada-published", "A-noise-05"} < rows
    for name in rows:
        one = found.part(found.find_trial(name, 1).parts["extract"]).config
        assert one.method in ("none", "knockoff", "ada-steal")
        assert one.alignment.guide is None and one.alignment.steps == 1 and one.alignment.direction == "away"
        assert (one.fitting.wordings, one.fitting.repeats, one.transcript) == (1, None, "accumulate")
        assert "ours" not in config.chosen()[name].changes


def test_rows_that_are_ours_are_named_so(ada_steal: Shipped) -> None:
    config, found = ada_steal
    for name, variant in config.chosen().items():
        one = found.part(found.find_trial(name, 1).parts["extract"]).config
        extras = one.alignment.guide or one.alignment.steps > 1 or one.fitting.wordings > 1 or one.fitting.repeats
        if one.method == "ada-steal":
            assert bool(extras) == variant.changes.startswith("ours: ") == ("-ours-" in name), name


def test_defences_are_tested_against_an_attack_of_ours(tmp_path: Path) -> None:
    config, found = shipped("extraction_defences", tmp_path)
    attacks = {name: found.part(found.find_trial(name, 1).parts["extract"]).config for name in config.variants}
    assert {one.colour for one in attacks.values()} == {"grey"}  # as in the results that are reported
    gate = next(part for part in found.parts if part.folder.endswith("defend/gate"))
    assert gate.config.chest == tmp_path / "corpora/query/images" / "p000000s1.png"
    assert config.attack == "guided" and attacks["guided"].alignment.guide == "builtin:encoder"
    assert attacks["not-trained-guided"].victim == "builtin:reporter"


def test_a_language_model_as_oracle_is_asked_once_before_everything_else(tmp_path: Path) -> None:
    """One set of answers for seeds and variants; other questions or another store are asked on their own."""
    oracle = "http://127.0.0.1:9/v1#words"
    rows = variants(
        a={"oracle": oracle},
        b={"oracle": oracle, "alignment": {"eps": "0.1"}},
        c={"oracle": oracle, "oracle_llm": {"cache": "mine.sqlite"}},
        d={"oracle": oracle, "method": "knockoff"},
        e={},
    )
    found = planned(tmp_path, variants=rows, seeds=(3, 5))
    assert [part.folder for part in found.parts][:3] == ["oracle/a", "oracle/c", "models/taught"]
    asked = [part.config for part in found.parts if part.kind == "oracle"]
    assert [(one.seed, one.oracle_llm.cache) for one in asked] == [(3, None), (3, Path("mine.sqlite"))]
    runs = {part.folder: part.config.oracle_run for part in found.parts if part.kind == "extract"}
    for seed in (3, 5):
        own = [runs[f"seed{seed}/extract/{name}"] for name in "abcde"]
        assert own == [tmp_path / "oracle/a", tmp_path / "oracle/a", tmp_path / "oracle/c", None, None]
        assert "oracle/a" in found.part(f"seed{seed}/extract/b").needs


def test_an_oracle_on_another_machine_without_encryption_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    found = planned(tmp_path / "study", variants=variants(a={"oracle": "http://far.example/v1#words"}))
    with pytest.raises(ConfigError, match="--oracle-llm.connection.allow-insecure"):
        run_recipe(found)
    assert not (tmp_path / "study").exists()


def test_images_attacked_on_copies_are_shown_to_their_victim_once_a_seed(tmp_path: Path) -> None:
    """Two copies of one victim share an audit; the unrelated model comes last."""
    rows = variants(a={}, same={}, wider={"budget": 60}, other={"victim": "builtin:reporter"})
    transfer = {"variants": ["a", "same", "wider", "other"], "unrelated": "made:stranger", "eps": ["2/255"]}
    models = {**BASE["models"], "stranger": {"start": "builtin:outsider"}}
    found = planned(tmp_path, models=models, variants=rows, transfer=transfer, seeds=(3, 5))
    audits = [part for part in found.parts if part.kind == "transfer"]
    assert [part.folder for part in audits] == [
        f"seed{seed}/transfer/{name}" for seed in (3, 5) for name in ("a", "other")
    ]
    first, second = (part.config for part in audits[:2])
    stranger, extract = f"hf:{tmp_path}/models/stranger/checkpoint", f"hf:{tmp_path}/seed3/extract"
    assert second.model == "builtin:reporter" and second.versus == (
        f"{extract}/other/copies/30/fit/checkpoint",
        stranger,
    )
    assert first.versus[:2] == (f"{extract}/a/copies/30/fit/checkpoint", f"{extract}/wider/copies/60/fit/checkpoint")
    assert (first.attacks, first.aims, first.n, first.seed) == (("pgd", "noise"), ("report",), 5, 3)
    assert {"seed3/extract/a", "seed3/extract/wider"} <= set(audits[0].needs)


# --- what is refused -------------------------------------------------------------------------------------------------


@every_row(
    ("changes", "message"),
    [
        ({"variants": {}}, "variants has 0 rows"),
        ({"variants": {"a": {"change": "x"}}}, "Did you mean 'changes'"),
        ({"variants": {"a/b": {"changes": "x"}}}, "letters, digits"),
        ({"data": "drown"}, "Did you mean 'drawn'"),
        ({"seeds": (1, 1)}, "different whole numbers"),
        ({"at_once": 0}, "at_once=0"),
        ({"metrics": ()}, "name at least one"),
        ({"contrasts": (("ada",),)}, "two different variants"),
        ({"contrasts": (("ada", "knockof"),)}, "contrasts: there is no variant 'knockof'. Did you mean 'knockoff'"),
        ({"pairwise": (("ada", "ada"),)}, "pairwise holds"),
        ({"controls": ("adda",)}, "controls: there is no variant 'adda'"),
        ({"tables": {"T": {"variants": ["adda"]}}}, "tables, 'T': there is no variant 'adda'"),
        ({"tables": {"T": {"rows": ["ada"]}}}, "there is no setting 'rows'"),
        ({"tables": {"T": {"variants": ["ada"], "published": {"knockoff": {"m": 1}}}}}, "is not a row of it"),
        ({"tables": {"T": {"variants": ["ada"], "published": {"ada": {"m": "x"}}}}}, "give metrics with a number"),
        ({"detect": {"n": 3}}, "detect needs 'variants'"),
        ({"defend": {"n": 3}}, "defend needs 'variant'"),
        ({"defend": {"variant": "ada", "seeds": 0}}, "give a number of seeds"),
        ({"transfer": {"n": 3}}, "transfer needs 'variants'"),
        ({"transfer": {"variants": ["adda"]}}, "transfer: there is no variant 'adda'"),
        ({"defend": {"variant": "adda"}}, "defend: there is no variant 'adda'"),
    ],
)
def test_bad_settings_are_refused_before_the_study_starts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extract": {**BASE["extract"], "seed": 3}}, "extract of 'ada': 'seed' is set by the study itself"),
        ({"extract": {**BASE["extract"], "measure": {"metrics": ["x"]}}}, "'measure.metrics' is set by the study"),
        ({"extract": {**BASE["extract"], "measure": 3}}, "'measure' is a group of settings"),
        ({"extract": {**BASE["extract"], "pool": "corpus:drown"}}, "there is no corpus 'drown' in the list"),
        (
            {"extract": {**BASE["extract"], "victim": "made:tought"}},
            "no model 'tought' before it. Did you mean 'taught'",
        ),
        ({"extract": {"budget": 3}}, "'victim' has no default"),
        (
            {"models": {"taught": {"start": "made:taught"}}},
            "models, 'taught': the study makes no model 'taught' before",
        ),
        ({"models": {"taught": {"start": "builtin:reporter", "data": "drown"}}}, "there is no corpus 'drown'"),
        ({"models": {"taught": 3}}, "models, 'taught': it is 3"),
        ({"metrics": ("bleu*",)}, "one by one"),
        ({"metrics": ("findings.f2",)}, "findings.f2"),
        ({"detect": {"variants": ["ada"], "stream": ["x"]}}, "detect: 'stream' is set by the study itself"),
        ({"detect": {"variants": ["ada"], "detectors": ["prado"]}}, "Did you mean 'prada'"),
        ({"defend": {"variant": "ada", "defences": ["gait"]}}, "Did you mean 'gate'"),
        ({"transfer": {"variants": ["ada"], "versus": ["x"]}}, "transfer: 'versus' is set by the study itself"),
        ({"transfer": {"variants": ["ada"], "unrelated": "made:tought"}}, "no model 'tought' before it"),
        ({"defend": {"variant": "ada", "budget": 3}}, "defend: 'budget' is set by the study itself"),
        ({"variants": variants(a={}, b={"n": 9}), "contrasts": (("a", "b"),)}, "not measured on the same studies"),
        (
            {"variants": variants(a={}, b={"victim": "stub:normal"}), "controls": ("a", "b")},
            "do not have the same victim",
        ),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, **changes)


def test_wrong_settings_of_several_parts_are_reported_at_once_and_once(tmp_path: Path) -> None:
    """Two seeds would say the same twice, and so would victim and attack."""
    rows = variants(a={"budget": 0}, b={"alignment": {"eps": "3"}})
    wrong = {"taught": {"start": "builtin:reporter", "lora_rank": -1}}
    with pytest.raises(ConfigError, match="3 problems") as caught:
        planned(tmp_path / "study", variants=rows, models=wrong, seeds=(1, 2))
    for said in ("extract of 'a': budget=0", "extract of 'b': in 'alignment'", "models, 'taught': lora_rank=-1"):
        assert str(caught.value).count(said) == 1
    assert not (tmp_path / "study").exists()
