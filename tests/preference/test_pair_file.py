"""Pairs and single reports from a file: every row that could not teach is refused by its line."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from preference_runs import assert_rejected, changed, pair_lines, single_thread, tiny_preference_config, write_lines

from cxrlab.core.errors import ConfigError
from cxrlab.data.corpus import load_corpus
from cxrlab.preference.config import LossSettings, Measure, PreferConfig, Validation
from cxrlab.preference.dataset import read_preferences
from cxrlab.preference.train import prefer


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PreferConfig:
    return tiny_preference_config(tmp_path_factory.mktemp("prefer"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"chosen": "  \n"}, "'chosen' is empty"),
        ({"rejected": ""}, "'rejected' is empty"),
        ({"chosen": "No  EDEMA.", "rejected": "no edema."}, "chosen and rejected are the same text"),
        ({"id": "p999999s1"}, "there is no study 'p999999s1'"),
        ({"id": "TEST"}, "is of the test split, which is kept for measuring"),
        ({"chosen": None}, "chosen"),
        ({"chosen": 3}, "chosen"),
        ({"judge": None}, "judge"),
        ({"id": None}, "id"),
        ({"report": "Clear.", "desirable": True}, "it is a single report; only loss.name=kto"),
    ],
)
def test_a_row_that_cannot_teach_is_refused_by_its_line(
    config: PreferConfig, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    rows = pair_lines(config.data)
    rows[2] = {**rows[2], **changes}
    if rows[2]["id"] == "TEST":
        rows[2]["id"] = load_corpus(config.data).ids("test")[0]
    rows[2] = {name: value for name, value in rows[2].items() if value is not None}
    file = write_lines(tmp_path / "pairs.jsonl", rows)
    assert_rejected(config, tmp_path, rf"pairs\.jsonl:3.*{said}", pairs=file)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "p000001s1", "report": " ", "desirable": True}, "'report' is empty"),
        ({"id": "p000001s1", "report": "Clear."}, "needs 'id' .* and 'desirable'"),
        ({"id": "p000001s1", "report": "Clear.", "desirable": "yes"}, "needs 'id' .* and 'desirable'"),
        ({"report": "Clear.", "desirable": True}, "needs 'id' .* and 'desirable'"),
        ({"id": "p000000s1", "report": "Clear.", "desirable": True}, "is of the test split"),
        ({"id": "p000001s1", "chosen": "Clear.", "judge": "hand"}, "rejected"),
    ],
)
def test_a_single_report_that_cannot_teach_is_refused_by_its_line(
    config: PreferConfig, tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    fine = [{"id": key, "report": "Clear.", "desirable": True} for key in ("p000002s1", "p000004s1")]
    file = write_lines(tmp_path / "single.jsonl", [*fine, row])
    assert_rejected(config, tmp_path, rf"single\.jsonl:3.*{said}", pairs=file, loss=LossSettings("kto"))


def test_a_torn_line_is_named(config: PreferConfig, tmp_path: Path) -> None:
    file = Path(shutil.copy(config.pairs, tmp_path / "pairs.jsonl"))
    file.write_text(file.read_text() + '{"id": "p0000')
    number = len(pair_lines(config.data)) + 1
    assert_rejected(config, tmp_path, rf"pairs\.jsonl:{number} is not valid JSON .* ends in the middle", pairs=file)


def test_a_missing_image_is_reported_with_the_row_that_needs_it(config: PreferConfig, tmp_path: Path) -> None:
    data = shutil.copytree(config.data, tmp_path / "corpus")
    lost = pair_lines(config.data)[4]["id"]
    (data / "images" / f"{lost}.png").unlink()
    assert_rejected(config, tmp_path, rf"pairs\.jsonl:5: the image of study '{lost}' is missing", data=data)


def test_files_without_a_row_or_that_are_not_there(config: PreferConfig, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    assert_rejected(config, tmp_path, r"empty\.jsonl holds no row", pairs=tmp_path / "empty.jsonl")
    assert_rejected(config, tmp_path, r"nowhere\.jsonl", pairs=tmp_path / "nowhere.jsonl")
    (tmp_path / "folder").mkdir()
    assert_rejected(config, tmp_path, "has no pairs.jsonl", pairs=tmp_path / "folder")


def test_studies_that_are_looked_at_are_not_learnt_from(config: PreferConfig, tmp_path: Path) -> None:
    """They would be judged on what they were taught; where nothing is watched or measured they may be learnt."""
    watched = load_corpus(config.data).ids("val")[0]
    rows = [*pair_lines(config.data), {"id": watched, "chosen": "Clear.", "rejected": "No edema.", "judge": "hand"}]
    file = write_lines(tmp_path / "pairs.jsonl", rows)
    said = rf"pairs\.jsonl:{len(rows)}: study '{watched}' is of the val split"
    assert_rejected(config, tmp_path, said, pairs=file, validation=Validation(n=2))
    assert_rejected(config, tmp_path, said, pairs=file, measure=Measure(n=2, split="val"))
    prefer(changed(config, pairs=file, steps=1), tmp_path / "run")


def test_too_few_pairs_for_a_step_are_refused(config: PreferConfig, tmp_path: Path) -> None:
    assert_rejected(config, tmp_path, "a step takes 4 samples .* and the data have 3", n=3)


def test_a_pair_is_chosen_then_rejected_of_one_image(config: PreferConfig) -> None:
    rows, judged = pair_lines(config.data), read_preferences(config.pairs, config.data, paired=True)
    samples = judged.source.samples
    assert judged.desirable is None and len(judged) == len(rows)
    assert [one.report for one in samples] == [row[name] for row in rows for name in ("chosen", "rejected")]
    assert all(one.images == other.images for one, other in zip(samples[::2], samples[1::2], strict=True))


def test_pairs_may_be_read_as_single_reports(config: PreferConfig) -> None:
    rows, judged = pair_lines(config.data), read_preferences(config.pairs, config.data, paired=False)
    assert judged.desirable is not None and judged.desirable.tolist() == [True, False] * len(rows)
    own = [one.report for one in judged.source.samples[::2]]
    assert own == [row[name] for row in rows for name in ("chosen", "rejected")]


@pytest.mark.parametrize("seed", range(5))
def test_a_report_of_another_study_is_of_another_study(config: PreferConfig, tmp_path: Path, seed: int) -> None:
    """Three studies with four reports each, all different: none is beside one of its own study, few come twice."""
    keys = ("p000001s1", "p000002s1", "p000004s1")
    rows = [{"id": key, "report": f"{key} {k}", "desirable": k % 2 == 0} for k in range(4) for key in keys]
    file = write_lines(tmp_path / "single.jsonl", rows)
    samples = read_preferences(file, config.data, paired=False, seed=seed).source.samples
    strange = [one.report for one in samples[1::2]]
    for own, other in zip(samples[::2], strange, strict=True):
        assert other.split()[0] != own.id and other in {row["report"] for row in rows}
    assert all(one.images == other.images for one, other in zip(samples[::2], samples[1::2], strict=True))
    assert len(set(strange)) >= 6


def test_a_draw_of_pairs_is_decided_by_the_seed(config: PreferConfig) -> None:
    drawn = [
        [one.id for one in read_preferences(config.pairs, config.data, paired=True, n=5, seed=seed).source.samples[::2]]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2] and len(set(drawn[0])) == 5


def test_kto_alone_needs_company(config: PreferConfig, tmp_path: Path) -> None:
    rows = [{"id": "p000001s1", "report": text, "desirable": True} for text in ("Clear.", "No edema.")]
    file = write_lines(tmp_path / "single.jsonl", rows)
    assert_rejected(config, tmp_path, "single reports of one study alone", pairs=file, loss=LossSettings("kto"))
    with pytest.raises(ConfigError, match="optimisation.batch_size=1 is not usable; give at least 2"):
        changed(config, loss=LossSettings("kto"), batch_size=1)
