"""Commands whose work is shared among processes write the files of one process, byte by byte."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from shared_work import files, helpers_for_workers, killed_after, launcher, open_dying, pickled_workers

from cxrlab.cli.main import main
from cxrlab.core.runs import state
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation import generate as generation
from cxrlab.evaluation import score as scores
from cxrlab.preference import sample_candidates as sampling
from cxrlab.robustness import audit as audits

RAY = ("--engine", "ray", "--workers", "2")


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PhantomConfig(n=60, size=32, seed=7, masks=False, workers=1)
    return make_phantom(config, tmp_path_factory.mktemp("corpora") / "phantom").path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose numbers depend on how its batches are padded."""
    tiny_models = pytest.importorskip("tiny_models")
    return f"hf:{tiny_models.save_tiny_llava(tmp_path_factory.mktemp('models') / 'tiny')}"


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray, started once for the tests that do not kill it."""
    with pytest.MonkeyPatch.context() as patch:
        helpers_for_workers(patch)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        module = pytest.importorskip("ray")
        module.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
            object_store_memory=1 << 27, _node_ip_address="127.0.0.1",
        )  # fmt: skip
        yield module
        module.shutdown()


def words_of(command: str, phantom: Path, tiny: str) -> list[str]:
    """The words of a command with several batches, without its run folder."""
    more = {
        "generate": ["--split", "train", "--n", "13", "--batch-size", "2", "--control-studies", "5",
                     "--decoding.max-new-tokens", "6"],
        "prefer sample": ["--n", "13", "--batch-size", "2", "--answers", "2", "--greedy", "--max-new-tokens", "6"],
        "robustness": [
            "--split", "train", "--n", "10", "--batch-size", "4", "--attacks", "pgd,random-report,noise",
            "--eps", "4/255", "--attack.steps", "2", "--attack.queries", "4", "--control-studies", "5",
            "--trials", "20", "--triptychs", "2", "--decoding.max-new-tokens", "6",
        ],
    }[command]  # fmt: skip
    return [*command.split(), "--model", tiny, "--data", str(phantom), *more]


MODULES: dict[str, tuple[Any, str]] = {
    "generate": (generation, "open_report_worker"),
    "prefer sample": (sampling, "open_sampling_worker"),
    "robustness": (audits, "open_audit_worker"),
}
EVIDENCE = {"generate": "predictions.jsonl", "prefer sample": "candidates.jsonl", "robustness": "answers.jsonl"}


@pytest.fixture(scope="module")
def local(phantom: Path, tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """The files of each command by one process, made once."""
    found: dict[str, dict[str, bytes]] = {}

    def run(command: str) -> dict[str, bytes]:
        if command not in found:
            out = tmp_path_factory.mktemp("local") / "run"
            assert main([*words_of(command, phantom, tiny), "--out", str(out), "--quiet"]) == 0
            found[command] = files(out)
        return found[command]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("command", ["generate", "prefer sample", pytest.param("robustness", marks=pytest.mark.full)])
def test_workers_write_the_files_of_one_process(
    command: str, local: Any, phantom: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks and results go through pickle, as between processes."""
    monkeypatch.setattr(MODULES[command][0], "open_workers", pickled_workers)
    assert main([*words_of(command, phantom, tiny), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert files(tmp_path / "run") == local(command)


@pytest.mark.slow
def test_memory_that_runs_out_in_a_worker_halves_the_batches_of_all(
    phantom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, sizes = generation.generate_batch, []

    def small(writer: Any, images: Any, keys: Any) -> Any:
        sizes.append(len(keys))
        if len(keys) > 2:
            raise MemoryError
        return whole(writer, images, keys)

    monkeypatch.setattr(generation, "generate_batch", small)
    words = [
        "generate",
        "--model",
        f"retrieval:{phantom}",
        "--data",
        str(phantom),
        "--split",
        "val",
        "--batch-size",
        "8",
    ]
    assert main([*words, "--out", str(tmp_path / "local")]) == 0
    alone = sizes[:]
    sizes.clear()
    monkeypatch.setattr(generation, "open_workers", pickled_workers)
    assert main([*words, "--out", str(tmp_path / "shared")]) == 0
    assert sizes == alone and 8 in sizes and 4 in sizes and 2 in sizes
    assert "continuing with 2" in capsys.readouterr().err
    assert files(tmp_path / "shared") == files(tmp_path / "local")
    assert (tmp_path / "shared" / "batch.json").read_bytes() == (tmp_path / "local" / "batch.json").read_bytes()


@pytest.mark.full
@pytest.mark.parametrize("command", EVIDENCE)
def test_a_killed_worker_of_ray_changes_nothing(
    command: str, ray: Any, local: Any, phantom: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = MODULES[command]
    make = getattr(module, name)
    killed = tmp_path / "killed"
    monkeypatch.setattr(module, name, partial(open_dying, make, killed, 3))
    assert main([*words_of(command, phantom, tiny), "--out", str(tmp_path / "run"), "--quiet", *RAY]) == 0
    assert killed.is_file()
    assert files(tmp_path / "run") == local(command)


@pytest.mark.full
@pytest.mark.parametrize("command", EVIDENCE)
def test_a_killed_run_of_ray_is_finished_by_a_launch_of_two_processes(
    command: str, local: Any, phantom: Path, tiny: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = [*words_of(command, phantom, tiny), "--out", str(out), "--quiet"]
    assert killed_after(3, EVIDENCE[command], [*words, *RAY]) != 0
    assert state(out) == "running" and (out / EVIDENCE[command]).read_bytes() in local(command)[EVIDENCE[command]]
    assert launched(words) == 0
    assert files(out) == local(command)


@pytest.mark.full
@pytest.mark.parametrize("command", EVIDENCE)
def test_a_killed_launch_is_finished_by_one_worker_of_ray(
    command: str, ray: Any, local: Any, phantom: Path, tiny: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = [*words_of(command, phantom, tiny), "--out", str(out), "--quiet"]
    assert killed_after(3, EVIDENCE[command], words, launcher()) != 0
    assert state(out) == "running" and len((out / EVIDENCE[command]).read_bytes()) < len(
        local(command)[EVIDENCE[command]]
    )
    assert main([*words, "--engine", "ray", "--workers", "1"]) == 0
    assert files(out) == local(command)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,100 pairs of a few reports: three parts."""
    reports = [
        "Clear lungs.",
        "Small left pleural effusion.",
        "Cardiomegaly. No effusion.",
        "Right apical pneumothorax.",
    ]
    rows = [
        f"s{n},p{n // 2},{reports[n % 4]},{reports[(n * n + n // 3) % 4]} {'Stable.' * (n % 3 == 0)}"
        for n in range(2100)
    ]
    file = tmp_path_factory.mktemp("texts") / "pairs.csv"
    file.write_text("\n".join(["id,patient,reference,candidate", *rows]) + "\n")
    return file


def scoring(texts: Path, out: Path) -> list[str]:
    metrics = "bleu4:coco,cider:coco,findings,errors"
    return ["score", str(texts), "--metrics", metrics, "--trials", "20", "--workers", "2", "--out", str(out), "--quiet"]


@pytest.mark.slow
def test_parts_that_workers_count_give_the_scores_of_one_process(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "few.csv"
    few.write_text("\n".join(texts.read_text().splitlines()[:50]) + "\n")
    monkeypatch.setattr(scores, "PART", 16)
    assert main(scoring(few, tmp_path / "local")) == 0
    monkeypatch.setattr(scores, "open_workers", pickled_workers)
    assert main(scoring(few, tmp_path / "shared")) == 0
    assert files(tmp_path / "shared") == files(tmp_path / "local")
    assert {"scores.json", "per_study.jsonl", "tallies.npz"} <= files(tmp_path / "shared").keys()


@pytest.mark.full
def test_scores_by_ray_with_a_killed_worker_and_by_a_launch_are_those_of_one_process(
    ray: Any, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(scoring(texts, tmp_path / "local")) == 0
    assert launched(scoring(texts, tmp_path / "launched")) == 0
    killed = tmp_path / "killed"
    monkeypatch.setattr(scores, "ScoreWorker", partial(open_dying, scores.ScoreWorker, killed, 1))
    assert main([*scoring(texts, tmp_path / "ray"), "--engine", "ray"]) == 0
    assert killed.is_file()
    assert files(tmp_path / "ray") == files(tmp_path / "launched") == files(tmp_path / "local")


def launched(words: list[str]) -> int:
    return subprocess.run([*launcher(), "-m", "cxrlab", *words], timeout=400).returncode
