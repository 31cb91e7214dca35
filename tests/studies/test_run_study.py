"""Finding and reading a study: by file, by name, small, and with mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.config import is_config
from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.core.registry import load_reference
from cxrlab.studies.engine import StudyRecipe, merged
from cxrlab.studies.processed_vs_rule_text import AnalysisConfig, TextAnalysis
from cxrlab.studies.run_study import STUDIES, find_study, read_study, run_study

ANALYSIS = "study: analysis1\nreferences: {}\ntrials: 20\nquick:\n  trials: 3\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


def test_a_file_gives_the_settings_of_its_row(tmp_path: Path) -> None:
    prepared = read_study(written(tmp_path, ANALYSIS.format("there")))
    assert prepared.recipe is TextAnalysis and prepared.name == "mine"
    assert prepared.config == AnalysisConfig(references=Path("there"), trials=20)


def test_quick_replaces_settings(tmp_path: Path) -> None:
    assert read_study(written(tmp_path, ANALYSIS.format("there")), quick=True).config.trials == 3


def test_groups_are_merged_and_null_takes_out() -> None:
    """A variant that a quick look leaves out is set to null."""
    base = {"a": {"x": 1, "y": 2}, "b": 3, "c": [1, 2]}
    assert merged(base, {"a": {"y": None, "z": 4}, "c": [3]}) == {"a": {"x": 1, "z": 4}, "b": 3, "c": [3]}
    assert base["a"] == {"x": 1, "y": 2}  # what was given is left as it was


def test_a_name_is_looked_for_in_the_shipped_folder() -> None:
    assert find_study("analysis1_text").name == "analysis1_text.yaml"


@pytest.mark.parametrize("given", ["analysis1_txt", "configs/studies/analysis1_txt.yaml"])
def test_an_unknown_study_names_the_nearest(given: str) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'analysis1_text'"):
        find_study(given)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("references: x\n", "'study' is null"),
        ("study: 3\n", "'study' is 3"),
        ("study: analysis1\nquick: 3\nreferences: x\n", "'quick' is 3"),
        ("study: analysis1\nreferences: x\ntrails: 3\n", "trials"),
        ("quick: true\nseed: 7\n", "cxrlab tour"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_study(written(tmp_path, text))


def test_an_unknown_kind_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="ablations, analysis1"):
        read_study(written(tmp_path, "study: ablation5\n"))


def test_a_file_without_small_sizes_has_no_quick_look(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no small sizes"):
        read_study(written(tmp_path, "study: analysis1\nreferences: x\n"), quick=True)


def test_a_quick_look_cannot_leave_out_what_is_not_there(tmp_path: Path) -> None:
    text = "study: ablations\nvariants: {full: {changes: x}}\nquick: {variants: {ful: null}}\n"
    with pytest.raises(ConfigError, match=r"'quick' removes 'ful', which is not a variant\. Did you mean 'full'"):
        read_study(written(tmp_path, text), quick=True)


def test_every_row_is_a_recipe_whose_parts_can_be_run() -> None:
    for row in STUDIES:
        recipe = STUDIES.load(row)
        assert issubclass(recipe, StudyRecipe) and is_config(recipe.config_class) and recipe.title
        for kind in recipe.kinds.values():
            assert is_config(load_reference(kind.config)) and callable(load_reference(kind.run))


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would write into one folder."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="one process"):
        run_study("analysis1_text")


def test_a_study_that_cannot_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from cxrlab.core.errors import CxrlabError

    with pytest.raises(CxrlabError):
        run_study(str(written(tmp_path, ANALYSIS.format("nowhere"))))
    assert not (tmp_path / "runs").exists()
