"""What is refused before a victim is asked anything."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import toy_corpus
from PIL import Image
from prediction_runs import effusions
from recording_victims import small_images

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, DataError, UnknownName
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.core.records import Report
from cxrlab.extraction import audit
from cxrlab.extraction.config import Alignment, DefenceSettings, ExtractConfig, FidelityConfig
from cxrlab.extraction.preflight import check_measurable, check_pool, pictures_needed
from cxrlab.extraction.query_ledger import Ledger
from cxrlab.extraction.query_pools import open_pool
from cxrlab.extraction.records import AuditScope
from cxrlab.extraction.victim_client import VictimClient
from cxrlab.models.load_settings import LoadSettings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return effusions(tmp_path_factory.mktemp("data") / "images", 4)


def settings(data: Path, **changes: Any) -> ExtractConfig:
    return ExtractConfig("stub:normal", data, **{"method": "knockoff", "budget": 3, "size": 16, **changes})


def checked(config: ExtractConfig) -> None:
    check_pool(config, open_pool(config.pool, size=config.size, seed=config.seed), check_measurable(config))


def test_what_can_be_measured_and_queried_passes(data: Path) -> None:
    checked(settings(data))
    checked(settings(data, pool="noise", method="none", budget=10_000))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"data": Path("nowhere")}, DataError, "nowhere does not exist"),
        ({"split": "val"}, DataError, "no study in its val split"),
        ({"measure": FidelityConfig(metrics=("findings.f7",))}, UnknownName, r"findings\.f7"),
        ({"measure": FidelityConfig(section="impression")}, DataError, "None of the 4 studies .* impression"),
    ],
)
def test_what_could_not_be_measured_costs_no_query(
    data: Path, tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    config = settings(**{"data": data, **changes})
    with pytest.raises(error, match=message):
        audit.extract(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "picture", "needed"),
    [("knockoff", "original", 8), ("in-domain", "original", 8), ("none", "original", 0),
     ("ada-steal", "original", 3), ("ada-steal", "last", 3), ("ada-steal", "fresh", 8)],
)  # fmt: skip
def test_pictures_that_an_attack_draws(data: Path, method: str, picture: Any, needed: int) -> None:
    config = settings(data, method=method, budget=8, rounds=3, alignment=Alignment(picture=picture), pool="corpus:x")
    assert pictures_needed(config) == needed


def test_pictures_that_are_probed_with_are_not_drawn_again(data: Path) -> None:
    """Of 33 queries at least 3 go into probes: 10 pictures for each of three rounds, beside the 3."""
    assert pictures_needed(settings(data, method="ada-steal", budget=33, rounds=3, probes=3)) == 13
    assert pictures_needed(settings(data, budget=33, probes=3)) == 33


def test_a_pool_that_would_end_in_the_middle_is_refused(data: Path, tmp_path: Path) -> None:
    train = toy_corpus(tmp_path / "train", 5, {k: {"split": "train"} for k in range(5)}).path
    fresh = Alignment(picture="fresh")
    checked(settings(data, method="ada-steal", budget=9, rounds=3, pool=f"corpus:{train}"))
    with pytest.raises(DataError, match="holds 5 images, but the attack sends 9"):
        checked(settings(data, method="ada-steal", budget=9, rounds=3, pool=f"corpus:{train}", alignment=fresh))


@pytest.mark.parametrize("pool", ["corpus:{}@test", "mix:0.5:corpus:{}@test+noise"])
def test_nobody_is_graded_on_the_images_that_were_queried(data: Path, tmp_path: Path, pool: str) -> None:
    with pytest.raises(DataError, match="holds (the )?test images"):
        checked(settings(data, pool=pool.format(data)))
    copied = shutil.copytree(data, tmp_path / "copied")  # another folder, the same images
    with pytest.raises(DataError, match="holds (the )?test images"):
        checked(settings(data, pool=pool.format(copied)))
    others = effusions(tmp_path / "others", 3)
    checked(settings(data, pool=pool.format(others)))


@pytest.mark.parametrize("pool", ["folder:{}", "mix:0.5:folder:{}+noise"])
def test_a_folder_that_holds_those_images_is_refused_too(data: Path, tmp_path: Path, pool: str) -> None:
    others = tmp_path / "others"
    others.mkdir()
    for number in range(20):
        Image.new("L", (8, 8), number).save(others / f"{number}.png")
    checked(settings(data, pool=pool.format(others)))
    for folder in (data, data.parent):
        with pytest.raises(DataError, match="holds (the )?test images"):
            checked(settings(data, pool=pool.format(folder)))


def test_an_address_is_refused_before_anything_connects(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> Any:
        raise AssertionError("connected")

    monkeypatch.setattr("cxrlab.evaluation.load_model._load_by_name", connect)
    away = ExtractConfig("https://10.0.0.1/v1#m", data)
    for begin in (audit.extract, audit.write_victim):
        with pytest.raises(ConfigError, match="i-am-authorised"):
            begin(away, data / "run")
    named = replace(away, i_am_authorised="Dr Owner, yearly test")
    with pytest.raises(ConfigError, match=f"{data} may hold patients' data"):  # it is measured on those images
        audit.extract(named, data / "run")
    egress_permission = LoadSettings(connection=Connection(egress_permission="Dr Owner, for this test"))
    with pytest.raises(AssertionError, match="connected"):
        audit.extract(replace(named, loading=egress_permission), data / "run")
    monkeypatch.setenv("CXRLAB_API_KEY", "sk-of-the-oracle")
    with pytest.raises(ConfigError, match="CXRLAB_API_KEY would be sent to 10.0.0.1 and to words.example"):
        audit.extract(replace(named, loading=egress_permission, oracle="https://words.example/v1#m"), data / "run")
    with pytest.raises(ConfigError, match="may hold patients' data"):  # leave for the model is none for the images
        audit.write_victim(named, data / "run")


class Victim:
    """Answers everything."""

    name = "victim"
    capabilities = Capabilities()

    def generate(self, images: Any, indications: Any = None) -> list[Generated]:
        return [Generated("No pleural effusion.") for _ in images]


def test_a_quota_counts_alike_after_a_restart_where_pictures_came_twice(tmp_path: Path) -> None:
    """Quota 3 and pictures a, a, b, c, d: the second a reaches nobody, so that a, b and c are answered."""
    benign = toy_corpus(tmp_path / "benign", 2, {k: {"sections": Report(findings="Clear lungs.")} for k in range(2)})
    split = next(study.split for study in benign.studies())
    config = settings(
        tmp_path, defence="quota", defence_settings=DefenceSettings(benign.path, split or "train", quota=3), budget=9
    )
    a, b, c, d = small_images(4)
    asked = [a, a, b, c, d]

    def refusals(folder: Path, stops: tuple[int, ...]) -> list[bool]:
        for stop in stops:
            with Ledger.open(folder / "ledger.sqlite", AuditScope("victim", 9)) as ledger:
                client = VictimClient(
                    audit.defended_victim(config, Victim(), ledger, folder), ledger, folder, batch_size=1
                )
                client.query(asked[:stop], 0, 0)
                found = [query.refused for query in ledger.queries()]
        return found

    straight = refusals(tmp_path / "straight", (5,))
    assert straight == [False, False, False, False, True]
    assert refusals(tmp_path / "stopped", (2, 3, 5)) == straight
    assert np.unique([one.pixels.mean() for one in asked]).size == 4
