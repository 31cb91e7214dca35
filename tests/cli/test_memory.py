"""Memory that runs out: one sentence with flags that the command has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from cxrlab.cli import main as room
from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.core.errors import OutOfMemory

torch = pytest.importorskip("torch")

ON_GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
ON_CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried …")
ALONE = OutOfMemory("GPU memory ran out even with a batch of 1")
TO_WRITE = "generate --model stub:normal --data c --out r"


@pytest.mark.parametrize(
    ("line", "error", "there", "absent"),
    [
        (TO_WRITE, ON_CPU, ["--batch-size", "--loading.dtype bfloat16"], ["--optimisation"]),
        (TO_WRITE, ALONE, ["--loading.dtype bfloat16"], ["--batch-size"]),
        (f"{TO_WRITE} --loading.dtype=bfloat16", ON_GPU, ["--batch-size"], ["bfloat16"]),
        ("robustness --model stub:normal --data c --out r", ALONE, ["--loading.dtype bfloat16", "--image-size"], []),
        (
            "train align --vision-encoder t --language-model l --data c --out r",
            ON_GPU,
            ["--optimisation.batch-size", "--optimisation.gradient-checkpointing"],
            ["--no-", "--optimisation.workers"],
        ),
        ("prefer sample --model m --data c --out r", ON_GPU, ["--batch-size"], ["--image-size"]),
        ("data make phantom --out r", MemoryError(), ["--workers"], ["--batch-size", "bfloat16"]),
        ("doctor", MemoryError(), ["use a machine with more memory"], ["--"]),
    ],
)
def test_the_sentence_names_flags_that_the_command_has(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    error: Exception,
    there: list[str],
    absent: list[str],
) -> None:
    load = room._load

    def failing(target: str) -> Callable[..., Any]:
        @functools.wraps(load(target))
        def run(*_: Any, **__: Any) -> None:
            raise error

        return run

    monkeypatch.setattr(room, "_load", failing)
    monkeypatch.setattr(CommandLine, "parse", lambda self, words: _Nothing)
    assert room.main(line.split()) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "memory ran out" in said and "kept" in said
    assert ("GPU" in said) == ("CUDA" in str(error) or "GPU" in str(error))
    assert all(text in said for text in there) and not any(text in said for text in absent)


class _Nothing:
    arguments: dict[str, Any] = {}
    json = quiet = False


def test_every_command_whose_images_go_through_a_model_has_a_flag_for_its_memory() -> None:
    for name in ("generate", "robustness", "extract", "prefer sample", "prefer train", "train encoder", "train align",
                 "train finetune", "harden", "retrieve", "explain", "detect", "defend"):  # fmt: skip
        assert name in COMMANDS
        assert "--" in room._memory_advice(name.split(), (*room._SMALLER_STEPS, *room._SMALLER_MODEL)), name
