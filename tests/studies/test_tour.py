from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from cxrlab.core.config import config_from
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.runs import Run, state
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.studies import tour
from cxrlab.studies.tour import STEPS_OF_THE_TOUR, CorpusSize, TourConfig, TourSize, run_tour

pytestmark = pytest.mark.slow

# A tour in a second: the images few and small, the steps with models left out (tests/tour takes them).
TINY = CorpusSize(phantoms=60, phantom_size=32, scenes=3, scene_size=32, sheet=2, examples=2)


LEFT_OUT = "this test has no time for models"


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)


def make_tiny(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(tour.CORPUS_SIZES, "quick", TINY)
    patch.setattr(tour, "missing_models", lambda: LEFT_OUT)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tour, only for reading."""
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch)
        return run_tour(TourConfig(quick=True), tmp_path_factory.mktemp("once") / "tour").parent


@pytest.fixture
def finished(once: Path, tmp_path: Path) -> Path:
    """A copy of a finished tour."""
    return Path(shutil.copytree(once, tmp_path / "tour"))


def steps(out: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (out / "steps.jsonl").read_text().splitlines()]


def stopped_in(name: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tour that Ctrl-C ends in this step."""

    def stop(under_way: tour.Tour) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        broken = [replace(step, work=stop) if step.id == name else step for step in STEPS_OF_THE_TOUR]
        patch.setattr(tour, "STEPS_OF_THE_TOUR", tuple(broken))
        with pytest.raises(KeyboardInterrupt):
            run_tour(TourConfig(quick=True), out)


TOTAL_S = {"quick": 60, "default": 359, "full": 960}  # seconds for a whole tour on two shared cores


@pytest.mark.parametrize("size", get_args(TourSize))
def test_the_budgets_of_the_steps_fit_into_the_whole(size: TourSize) -> None:
    """Under six minutes by default; without models at most a third of the whole."""
    assert sum(step.budget(size) for step in STEPS_OF_THE_TOUR) <= TOTAL_S[size]
    assert sum(step.budget(size) for step in STEPS_OF_THE_TOUR if not step.needs) <= TOTAL_S[size] / 2.3


def test_the_steps_have_names_of_their_own() -> None:
    assert len({step.id for step in STEPS_OF_THE_TOUR}) == len(STEPS_OF_THE_TOUR)


def test_a_tour_has_one_size() -> None:
    assert [TourConfig(quick=True).size, TourConfig().size, TourConfig(full=True).size] == list(get_args(TourSize))
    with pytest.raises(ConfigError, match="--quick and --full"):
        TourConfig(quick=True, full=True)


def test_a_tour_goes_through_every_step_and_ends_with_a_page(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page = run_tour(TourConfig(quick=True), tmp_path / "tour")
    assert page.is_file() and state(tmp_path / "tour") == "finished"
    assert steps(tmp_path / "tour") == [step.id for step in STEPS_OF_THE_TOUR]
    logged = capsys.readouterr().err
    for step in STEPS_OF_THE_TOUR:
        line = f"{step.id:<10} left out: {LEFT_OUT}" if step.needs else f"s of {step.budget('quick'):3g}   {step.does}"
        assert line in logged
    assert LEFT_OUT in page.read_text()


def test_an_unfinished_part_is_listed_on_the_page(finished: Path) -> None:
    status = finished / "scores" / "normal" / "status.json"
    whole = status.read_text()
    status.write_text('{"state": "interrupted"}')
    with pytest.raises(RunError, match="scores/normal: interrupted"):
        run_tour(TourConfig(quick=True), finished)
    assert "Unfinished runs" in (finished / "page.html").read_text()
    status.write_text(whole)
    (finished / "page.html").unlink()
    assert "Unfinished runs" not in run_tour(TourConfig(quick=True), finished).read_text()


def test_what_was_left_out_stays_left_out_when_a_tour_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Weights that come while a tour is stopped would make half of it a tour with models."""
    out = tmp_path / "tour"
    stopped_in("score", out, monkeypatch)
    monkeypatch.setattr(tour, "missing_models", lambda: None)
    run_tour(TourConfig(quick=True), out)
    assert not (out / "explained").exists() and "pointing   left out" in capsys.readouterr().err
    run_tour(TourConfig(quick=True), out)
    assert f"finished without models ({LEFT_OUT})" in capsys.readouterr().err


def test_a_step_whose_part_is_not_installed_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from cxrlab.core import environment

    served = next(step for step in STEPS_OF_THE_TOUR if "serve" in step.needs)
    others = [step for step in STEPS_OF_THE_TOUR if step is not served]
    assert served.why_left_out(None) is None
    absent = {"serve": {"httpx": None}}
    status = environment.ExtraStatus
    monkeypatch.setattr(environment, "_status", lambda extra: status(extra, absent.get(extra, {"torch": "1"})))
    assert "httpx is not installed" in str(served.why_left_out(None))
    assert not any(step.why_left_out(None) for step in others)


def test_what_is_missing_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The extra first, then the weights; nothing when both are there."""
    from cxrlab.core import environment
    from cxrlab.models import builtin

    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(environment, "_status", lambda extra: environment.ExtraStatus(extra, {"torch": None}))
        assert "models" in str(tour.missing_models())
    pytest.importorskip("torch")
    monkeypatch.setattr(builtin, "WEIGHTS", tmp_path)
    assert tour.missing_models() == "this copy has no weights for builtin:general"
    for name in builtin.NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "cxrlab.json").write_text("{}")
        (tmp_path / name / "model.safetensors").touch()
    assert tour.missing_models() is None


def test_a_stopped_tour_goes_on_with_the_step_it_was_in(
    once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after its fifth step, it takes the other two and ends with the reports of an unbroken one."""
    out = tmp_path / "tour"
    stopped_in("retrieval", out, monkeypatch)
    assert state(out) == "interrupted" and "retrieval" not in steps(out) and "normal" in steps(out)
    written = (out / "corpus" / "studies.jsonl").stat().st_mtime_ns
    run_tour(TourConfig(quick=True), out)
    assert steps(out) == [step.id for step in STEPS_OF_THE_TOUR]
    assert (out / "corpus" / "studies.jsonl").stat().st_mtime_ns == written
    reports = [
        [json.loads(line)["report"] for line in (folder / "retrieval/predictions.jsonl").read_text().splitlines()]
        for folder in (out, once)
    ]
    assert reports[0] == reports[1] and reports[0]


def test_a_run_that_ended_just_before_its_note_is_not_made_again(finished: Path) -> None:
    """Killed between the end of a run and the line in steps.jsonl: the run is found finished and kept."""
    out = finished
    lines = (out / "steps.jsonl").read_text().splitlines(keepends=True)
    (out / "steps.jsonl").write_text("".join(line for line in lines if '"normal"' not in line))
    (out / "status.json").write_text('{"state": "running"}')
    run_tour(TourConfig(quick=True), out)
    assert sorted(steps(out)) == sorted(step.id for step in STEPS_OF_THE_TOUR)


def test_a_finished_tour_is_shown_again_and_its_page_remade_when_lost(
    finished: Path, capsys: pytest.CaptureFixture
) -> None:
    out, page = finished, finished / "page.html"
    first = page.read_bytes()
    assert run_tour(TourConfig(quick=True), out) == page
    assert "finished" in capsys.readouterr().err
    page.unlink()
    assert run_tour(TourConfig(quick=True), out).read_bytes() == first


def test_other_settings_in_the_same_folder_are_refused(finished: Path) -> None:
    with pytest.raises(RunError, match="seed was 7 and is now 8"):
        run_tour(TourConfig(quick=True, seed=8), finished)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"thesis\.tex"):
        run_tour(TourConfig(quick=True), tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir() if not entry.name.startswith(".")) == ["thesis.tex"]


def test_a_corpus_with_a_defect_stops_the_tour(tmp_path: Path) -> None:
    make_phantom(PhantomConfig(n=4, size=32, workers=1), tmp_path / "tour" / "corpus")
    next((tmp_path / "tour/corpus/images").iterdir()).unlink()
    (tmp_path / "tour" / "config.yaml").write_text("quick: true\nfull: false\nseed: 7\n")
    (tmp_path / "tour" / "environment.json").write_text('{"seed": 7}')
    with (
        Run.open(tmp_path / "tour", TourConfig(quick=True), seed=7) as run,
        pytest.raises(DataError, match="missing image"),
    ):
        under_way = tour.Tour(TourConfig(quick=True), tmp_path / "tour")
        under_way.run = run
        tour.check_images(under_way)
    assert not json.loads((tmp_path / "tour" / "check.json").read_text())["ok"]  # written down before it stops


def test_settings_are_checked_and_the_shipped_file_is_the_default() -> None:
    with pytest.raises(ConfigError, match="seed=-1"):
        TourConfig(seed=-1)
    shipped = Path(__file__).parents[2] / "configs" / "studies" / "tour.yaml"
    assert config_from(TourConfig, shipped) == TourConfig()
