"""The trainer: exact steps, exact resume, honest stops."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import run_together
from safetensors.torch import load_file
from toy_training import Toy, ToyRows, train_toy

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import state
from cxrlab.training.run_folder import MARKER, latest, mark_complete, training_run
from cxrlab.training.trainer import Part, plan

pytestmark = pytest.mark.slow

PROCESS = Path(__file__).parent / "toy_process.py"


def weights(module: Toy) -> torch.Tensor:
    return torch.cat([module.trained.weight.detach().flatten(), module.trained.bias.detach()])


def stored(out: Path) -> bytes:
    """The trained weights of the last checkpoint, byte by byte."""
    found = latest(out / "steps")
    assert found is not None
    return (found / "trained.safetensors").read_bytes()


def history(out: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_jsonl(out / "history.jsonl")]


def start(out: Path, **settings: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CXRLAB_QUIET": "1"}
    command = [sys.executable, str(PROCESS), str(out), json.dumps(settings)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_training_learns_and_writes_its_history(tmp_path: Path) -> None:
    """The target is a sum of the inputs behind a fixed layer: the loss must fall; 80 steps of 4 are 320 samples."""
    _, done = train_toy(tmp_path, Toy(0.0), steps=80, learning_rate=0.3)
    lines = history(tmp_path)
    assert [line["step"] for line in lines] == [*range(3, 80, 3), 80]
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"] and done.loss == lines[-1]["loss"]
    assert done.steps == 80 and done.samples == lines[-1]["samples"] == 320
    assert 0.29 < max(line["learning_rate"] for line in lines) <= 0.3


def test_only_what_is_trained_is_saved(tmp_path: Path) -> None:
    train_toy(tmp_path)
    found = latest(tmp_path / "steps")
    assert found is not None
    assert set(load_file(found / "trained.safetensors")) == {"trained.weight", "trained.bias"}
    assert len(list((tmp_path / "steps").glob("checkpoint-*"))) == 2


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", [0, 0.5, *(0.5 * (1 + math.cos(math.pi * k / 8)) for k in range(8))]),
        ("linear", [0, 0.5, *((8 - k) / 8 for k in range(8))]),
        ("constant", [0, 0.5, *[1.0] * 8]),
    ],
)
def test_the_rate_of_every_step_by_hand(tmp_path: Path, schedule: str, expected: list[float]) -> None:
    """Ten steps, two of them warm-up: the rate of step k, counted from 0, rises by halves and falls over eight."""
    train_toy(tmp_path, steps=10, warmup=0.2, schedule=schedule, learning_rate=1.0, log_every=1)
    assert [line["learning_rate"] for line in history(tmp_path)] == pytest.approx(expected)


def test_matrices_alone_are_decayed(tmp_path: Path) -> None:
    """No gradient reaches anything: with a rate of 0.1 and a decay of 1 the matrix loses a tenth in the one step that
    has the whole rate; bias, norm and DINOv2's layer scale, which no name gives away, stay as they are."""

    class Still(Toy):
        def __init__(self) -> None:
            super().__init__(0.0)
            self.norm, self.lambda1 = torch.nn.LayerNorm(4), torch.nn.Parameter(torch.ones(4))

        def forward(self, **batch: torch.Tensor) -> torch.Tensor:
            return 0.0 * sum(value.sum() for value in self.parameters())  # type: ignore[return-value]

    module = Still()
    before = {name: value.detach().clone() for name, value in module.named_parameters()}
    train_toy(tmp_path, module, steps=1, learning_rate=0.1, weight_decay=1.0, warmup=0.0)
    for name, value in module.named_parameters():
        share = 0.9 if name == "trained.weight" else 1.0
        assert torch.allclose(value, share * before[name]), name


def test_a_module_that_comes_in_evaluation_mode_is_trained_with_dropout(tmp_path: Path, straight: Path) -> None:
    """Checkpoints are opened in evaluation mode."""
    train_toy(tmp_path, Toy().eval())
    assert stored(tmp_path) == stored(straight)


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        train_toy(tmp_path / name)
    train_toy(tmp_path / "c", seed=8)
    assert stored(tmp_path / "a") == stored(tmp_path / "b") != stored(tmp_path / "c")
    assert history(tmp_path / "a") == history(tmp_path / "b")


@pytest.mark.parametrize(("batch", "accumulate"), [(1, 8), (2, 4), (4, 2)])
def test_accumulating_equals_a_big_batch(tmp_path: Path, batch: int, accumulate: int) -> None:
    """Rows hold 1 to 5 items each: dividing every forward pass by its own items would weigh them wrongly."""
    big, one = train_toy(tmp_path / "big", Toy(0.0), batch_size=8)
    small, other = train_toy(tmp_path / "small", Toy(0.0), batch_size=batch, accumulate=accumulate)
    assert torch.allclose(weights(big), weights(small), atol=1e-6)
    assert one.loss == pytest.approx(other.loss, abs=1e-6)


def test_the_loss_of_a_step_is_the_mean_over_its_items(tmp_path: Path) -> None:
    """With a learning rate too small to move anything, the first line is the weighted mean computed by hand."""
    module, rows = Toy(0.0), ToyRows()
    chosen = list(plan([Part(64)], 4, 1.0, 1, 7))
    expected = module(rows.x[chosen], rows.y[chosen], rows.weight[chosen]).detach() / rows.weight[chosen].sum()
    train_toy(tmp_path, module, steps=1, log_every=1, learning_rate=1e-12)
    assert history(tmp_path)[0]["loss"] == pytest.approx(float(expected), rel=1e-6)


class Cut(ToyRows):
    """Breaks off when the batch of a step is asked for, as a kill would."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.left = step * 4

    def __getitems__(self, rows: list[int]) -> Any:
        self.left -= len(rows)
        if self.left < 0:
            raise SystemExit("cut")
        return super().__getitems__(rows)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("straight")
    train_toy(out)
    return out


def test_a_killed_run_ends_with_the_bytes_of_a_straight_one(tmp_path: Path, straight: Path) -> None:
    """SIGKILL between two checkpoints; dropout, order, optimiser and the half-filled line of the history go on."""
    process = start(tmp_path, stall=6)
    assert process.stdout is not None and process.stdout.readline() == "stalled\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert state(tmp_path) == "running"
    train_toy(tmp_path)
    assert stored(tmp_path) == stored(straight) and history(tmp_path) == history(straight)


@pytest.mark.parametrize("step", [2, 5, 9, 11])
def test_a_run_cut_off_at_any_step_ends_with_the_same_bytes(tmp_path: Path, straight: Path, step: int) -> None:
    """Before the first checkpoint, right after one, between two, and before the last step."""
    with pytest.raises(SystemExit):
        train_toy(tmp_path, rows=Cut(step))
    train_toy(tmp_path)
    assert stored(tmp_path) == stored(straight) and history(tmp_path) == history(straight)


def test_a_checkpoint_without_its_marker_is_not_resumed_from(tmp_path: Path, straight: Path) -> None:
    """The kill came while checkpoint-8 was written: its weights are rubbish, and the run goes on from step 4."""
    with pytest.raises(SystemExit):
        train_toy(tmp_path, rows=Cut(10))
    half = tmp_path / "steps" / "checkpoint-8"
    (half / MARKER).unlink()
    (half / "trained.safetensors").write_bytes(b"half")
    train_toy(tmp_path)
    assert stored(tmp_path) == stored(straight)


@pytest.mark.parametrize("file", ["trained.safetensors", "optimizer.pt", "meter.json", "rng_state.pth"])
def test_a_damaged_checkpoint_is_not_resumed_from(tmp_path: Path, straight: Path, file: str) -> None:
    """One bit of a file that decides the result; without that folder the run goes on from the one before."""
    with pytest.raises(SystemExit):
        train_toy(tmp_path, rows=Cut(10))
    newest = tmp_path / "steps" / "checkpoint-8"
    content = bytearray((newest / file).read_bytes())
    content[-2] ^= 1
    (newest / file).write_bytes(content)
    with pytest.raises(RunError, match=rf"checkpoint-8 is damaged: .*{file}.*resume from checkpoint-4"):
        train_toy(tmp_path)
    assert (newest / MARKER).is_file()
    shutil.rmtree(newest)
    train_toy(tmp_path)
    assert stored(tmp_path) == stored(straight) and history(tmp_path) == history(straight)


class Harmful:
    """Would end the program when it is unpickled without care."""

    def __reduce__(self) -> object:
        return os._exit, (3,)


def test_a_checkpoint_with_code_in_it_is_not_resumed_from(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        train_toy(tmp_path, rows=Cut(10))
    found = latest(tmp_path / "steps")
    assert found is not None
    torch.save({"state": Harmful()}, found / "optimizer.pt")
    mark_complete(found)  # whoever puts code in can write its checksum too
    with pytest.raises(DataError, match=r"optimizer\.pt contains pickled code \(posix\._exit\); refused"):
        train_toy(tmp_path)


def test_ctrl_c_keeps_the_step_under_way(tmp_path: Path) -> None:
    """The signal comes while step 5 is under way: it is finished and saved, and the run goes on to the same bytes."""

    class Pressed(ToyRows):
        def __getitems__(self, rows: list[int]) -> Any:
            if len(self.seen) == 5 * 4:
                os.kill(os.getpid(), signal.SIGINT)
            return super().__getitems__(rows)

    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path / "stopped", rows=Pressed())
    assert state(tmp_path / "stopped") == "interrupted"
    found = latest(tmp_path / "stopped" / "steps")
    assert found is not None and found.name == "checkpoint-5"
    train_toy(tmp_path / "stopped")
    train_toy(tmp_path / "straight")
    assert stored(tmp_path / "stopped") == stored(tmp_path / "straight")
    assert history(tmp_path / "stopped") == history(tmp_path / "straight")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loss_that_is_no_number_stops_at_once_and_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    """The poisoned row comes in step 7, after the checkpoint of step 4."""
    poisoned = list(plan([Part(64)], 4, 1.0, 12, 7))[6 * 4]
    with pytest.raises(RunError, match=r"loss is nan at step 7 with a learning rate of 0\.0.*lower learning_rate"):
        train_toy(tmp_path, rows=ToyRows(poisoned=(poisoned,)))
    found = latest(tmp_path / "steps")
    assert found is not None and found.name == "checkpoint-4" and state(tmp_path) == "interrupted"
    assert all(torch.isfinite(value).all() for value in load_file(found / "trained.safetensors").values())


class Broken(Toy):
    """From its last step on the gradient is no number while the loss is one: that of a root at zero."""

    def __init__(self, steps: int) -> None:
        super().__init__(0.0)
        self.left = steps

    def forward(self, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        root = (0.0 * self.trained.bias).sqrt().sum() if self.left == 0 else 0.0
        return super().forward(x, y, weight) + root


def test_weights_that_are_no_numbers_are_not_kept(tmp_path: Path) -> None:
    """Every loss was a number; without a look at the weights the last checkpoint and the result would be worthless."""
    with pytest.raises(RunError, match="weights 'trained.* are no longer numbers after step 12"):
        train_toy(tmp_path, Broken(12))
    found = latest(tmp_path / "steps")
    assert found is not None and found.name == "checkpoint-8"


def test_a_run_does_not_go_on_from_other_frozen_weights(tmp_path: Path) -> None:
    """The config names the start; what lies there may have changed since. The frozen part is in no checkpoint."""
    with pytest.raises(SystemExit):
        train_toy(tmp_path, rows=Cut(2))  # before the first checkpoint, too
    other = Toy()
    with torch.no_grad():
        other.frozen.weight[0, 0] += 1e-3
    with pytest.raises(RunError, match="was begun with weights: .* choose another folder"):
        train_toy(tmp_path, other)


def test_a_run_does_not_go_on_with_another_number_of_processes(tmp_path: Path) -> None:
    with training_run({}, tmp_path, 0) as run:
        run.check_basis({"processes": 1})
        run.check_basis({"processes": 1})
        with pytest.raises(RunError, match="was begun with processes: 1, and now it is 2"):
            run.check_basis({"processes": 2})


class Unreadable(ToyRows):
    """An image that cannot be read any more."""

    def __getitems__(self, rows: list[int]) -> Any:
        raise DataError("images/7.png is empty (0 bytes); download or write it again.")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_image_that_cannot_be_read_any_more_is_one_sentence(tmp_path: Path, workers: int) -> None:
    """Also from a process of the loader, which wraps what it raises into a traceback."""
    with pytest.raises(DataError) as error:
        train_toy(tmp_path, rows=Unreadable(), workers=workers)
    assert str(error.value) == "images/7.png is empty (0 bytes); download or write it again."


def test_a_resume_with_other_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        train_toy(tmp_path, rows=ToyRows(poisoned=tuple(range(64))))
    with pytest.raises(RunError, match="learning_rate was 0.05 and is now 0.1"):
        train_toy(tmp_path, learning_rate=0.1)


def test_workers_do_not_change_the_result(tmp_path: Path) -> None:
    train_toy(tmp_path / "none")
    train_toy(tmp_path / "two", workers=2)
    assert stored(tmp_path / "none") == stored(tmp_path / "two")


@pytest.mark.parametrize(
    ("asked", "cores", "processes", "used"), [(0, 4, 1, 0), (3, 4, 1, 3), (64, 4, 1, 4), (4, 8, 4, 2), (2, 1, 2, 1)]
)
def test_a_loader_has_no_more_workers_than_cores(
    monkeypatch: pytest.MonkeyPatch, asked: int, cores: int, processes: int, used: int
) -> None:
    """Those of all processes that train together count."""
    from cxrlab.data import parallel
    from cxrlab.training import trainer
    from cxrlab.training.config import Optimisation

    monkeypatch.setattr(parallel, "usable_cores", lambda: cores)
    monkeypatch.setattr(trainer, "process_count", lambda: processes)
    order = plan([Part(64)], 4, 1.0, 1, 7)
    made = trainer.arguments(Optimisation(workers=asked), order, Path("steps"))
    assert made.dataloader_num_workers == used


@pytest.mark.full
def test_two_processes_equal_one(tmp_path: Path) -> None:
    """Two processes of batch 4 take the same steps as one of batch 4 with two forward passes, items unequal."""
    settings = json.dumps({"batch_size": 4, "dropout": 0.0})
    assert run_together([sys.executable, str(PROCESS), str(tmp_path / "two"), settings]) == [0, 0]
    one, _ = train_toy(tmp_path / "one", Toy(0.0), batch_size=4, accumulate=2)
    found = latest(tmp_path / "two" / "steps")
    assert found is not None
    two = load_file(found / "trained.safetensors")
    assert torch.allclose(torch.cat([two["trained.weight"].flatten(), two["trained.bias"]]), weights(one), atol=1e-6)
    for a, b in zip(history(tmp_path / "one"), history(tmp_path / "two"), strict=True):
        assert a["step"] == b["step"] and a["samples"] == b["samples"]
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
