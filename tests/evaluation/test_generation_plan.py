from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cxrlab.cli.main import main
from cxrlab.core.errors import DataError
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation import generate, generation_plan
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generation_plan import plan_generation


class Slow:
    """A model with a clock: 2 s per image, 5 s once, and memory for three images at most."""

    name, capabilities = "test:slow", Capabilities(batch=True)
    now, calls = 0.0, 0

    def generate(self, images: Sequence[Any], indications: Any = None) -> list[Generated]:
        if len(images) > 3:
            raise MemoryError
        self.now += 2.0 * len(images) + (5.0 if not self.calls else 0.0)
        self.calls += 1
        return [Generated("Clear.", tokens=7)] * len(images)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_phantom(PhantomConfig(n=30, size=32, masks=False, workers=1), tmp_path_factory.mktemp("c") / "c").path


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    model = Slow()
    monkeypatch.setattr(generate, "open_model", lambda *_: model)
    monkeypatch.setattr(generation_plan.time, "perf_counter", lambda: model.now)
    return model


def test_the_plan_is_measured_on_two_batches(slow: Slow, corpus: Path, tmp_path: Path) -> None:
    config = GenerateConfig("stub:normal", corpus, split="train", n=20, batch_size=12, control_studies=4)
    found = plan_generation(config)
    reports, controls = found.work
    assert (reports.count, controls.count, reports.measured) == (20, 12, 6) and slow.calls == 2
    assert found.facts["batch"] == 3, "12 and 6 images do not fit in memory"
    assert (reports.once_s, reports.seconds_each, found.facts["tokens_per_report"]) == (5.0, 2.0, 7.0)
    assert found.seconds == 11.0 + 2.0 * (20 + 12 - 3)
    assert found.hardware is not None
    assert found.hardware.memory_gb is None or found.hardware.memory_gb > 0.01


def test_reports_of_a_begun_run_are_done(slow: Slow, corpus: Path, tmp_path: Path) -> None:
    config = GenerateConfig("stub:normal", corpus, split="train", n=20, batch_size=2, control_studies=0)
    generate.generate(config, tmp_path / "run")
    assert not plan_generation(config, tmp_path / "run").work
    status = tmp_path / "run" / "status.json"
    status.write_text(status.read_text().replace("finished", "interrupted"))
    predictions = tmp_path / "run" / "predictions.jsonl"
    predictions.write_text("".join(predictions.read_text().splitlines(keepends=True)[:6]))
    found = plan_generation(config, tmp_path / "run")
    assert [(one.count, one.done) for one in found.work] == [(20, 6)] and found.seconds == pytest.approx(28.0, abs=5)


def test_the_command_prints_the_plan_and_writes_nothing(
    slow: Slow, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["generate", "--model", "stub:normal", "--data", str(corpus), "--split", "train", "--batch-size", "2"]
    assert main([*words, "--plan", "--quiet"]) == 0
    assert "reports per second" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert main(words) == 1
    assert "--out is missing" in capsys.readouterr().err


def test_requests_that_may_cost_money_are_not_sent_for_a_plan(slow: Slow, corpus: Path) -> None:
    slow.capabilities = Capabilities(black_box=True)  # type: ignore[misc]
    found = plan_generation(GenerateConfig("stub:normal", corpus, split="train", n=20))
    assert [(one.count, one.unit, one.seconds) for one in found.work] == [
        (20, "request", None),
        (60, "request", None),
    ]
    assert found.requests == 80 and not slow.calls


def test_a_plan_without_a_single_report_is_refused(slow: Slow, corpus: Path) -> None:
    """Studies that are left out take no time, from which the time of a run would follow."""
    slow.capabilities = Capabilities(several_images=True)  # type: ignore[misc]
    with pytest.raises(DataError, match=r"none of 4 studies got a report .*no lateral image"):
        plan_generation(
            GenerateConfig("stub:normal", corpus, split="train", n=4, views=("frontal", "lateral"), missing="drop")
        )
