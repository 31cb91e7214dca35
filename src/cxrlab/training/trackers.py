"""Experiment trackers (TensorBoard, Weights & Biases, MLflow, Trackio), through the integrations of Hugging Face's Trainer.

They get the numbers of the history and the settings of the optimisation, and neither texts nor paths. Everything stays on
this machine, unless the tracker's own environment variables name a server. RUN/track holds it; Trackio has its own folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import make_folder, read_json, write_json
from cxrlab.training.config import OPERATIONAL, Optimisation

TRACK = "track"
PROJECT = "cxrlab"
_IDENTITY = "run.json"
Log = Callable[[int, Mapping[str, float]], None]

# Set before a tracker is imported, where the user has not set them: nothing is sent, and what describes the machine, the
# command line and its paths, the working tree, or the output of the program is not recorded.
_PRIVATE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_MACHINE_INFO": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


def check_installed(names: Sequence[str]) -> None:
    """Refuse a tracker whose package is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"--track {name} needs the package {name}; install it with: pip install {name}")


@contextlib.contextmanager
def tracked(names: Sequence[str], run: Path, settings: Optimisation, step: int) -> Iterator[Log]:
    """Within it, what is logged goes to these trackers.

    Args:
        names: Of the trackers.
        run: The run folder; a resumed run goes on in the same track.
        settings: Shown by the trackers.
        step: The last step before a resumed run goes on; 0 for a new one.
    """
    if not names:
        yield lambda step, numbers: None
        return
    from transformers import TrainerControl, TrainerState
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    folder = make_folder(run / TRACK)
    identity = read_json(folder / _IDENTITY) if (folder / _IDENTITY).is_file() else {"id": secrets.token_hex(4)}
    shown = {name: value for name, value in asdict(settings).items() if f"optimisation.{name}" not in OPERATIONAL}
    # All that the integrations read of the Trainer's arguments; they get no model either.
    given: Any = SimpleNamespace(
        run_name=f"{run.resolve().name}-{identity['id']}", output_dir=TRACK, project=PROJECT, trackio_space_id=None,
        trackio_bucket_id=None, trackio_static_space_id=False, hub_private_repo=None, to_dict=lambda: dict(shown),
        to_json_string=lambda: json.dumps(shown, indent=2),
    )  # fmt: skip
    control = TrainerControl()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_environment(folder, identity))
        stack.enter_context(_offline_hub(names))
        with _undisturbed():
            # Readers of TensorBoard drop what a killed run had logged after the step from which it goes on.
            callbacks = [
                INTEGRATION_TO_CALLBACK[name](
                    **_writer(folder / name, step + 1 if step else 0) if name == "tensorboard" else {}
                )
                for name in names
            ]

        def call(event: str, at: int, **named: Any) -> None:
            with _undisturbed():
                for callback in callbacks:
                    getattr(callback, event)(given, TrainerState(global_step=at), control, **named)

        call("on_train_begin", step)
        if "mlflow" in names:
            identity["mlflow"] = sys.modules["mlflow"].active_run().info.run_id
        write_json(folder / _IDENTITY, identity)

        def end() -> None:
            call("on_train_end", step)
            if "wandb" in names:  # left open, so that the next training would log into this run
                sys.modules["wandb"].finish()
            for callback in callbacks:  # that of MLflow would end a later run once it is collected
                callback._auto_end_run = False

        stack.callback(end)
        yield lambda at, numbers: call("on_log", at, logs=dict(numbers))


def _writer(folder: Path, purge_step: int) -> dict[str, Any]:
    from torch.utils.tensorboard import SummaryWriter

    return {"tb_writer": SummaryWriter(str(folder), purge_step=purge_step)}


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """The output of a command is its result alone, and the training draws the same random numbers as without trackers."""
    python, array = random.getstate(), np.random.get_state()
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng([]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)


@contextlib.contextmanager
def _environment(folder: Path, identity: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of this run, where the user has not set them; the private ones stay for the whole process."""
    for name, value in _PRIVATE.items():
        os.environ.setdefault(name, value)
    own = {
        "WANDB_DIR": str(folder),
        "WANDB_PROJECT": PROJECT,
        "WANDB_RUN_ID": identity["id"],
        "WANDB_RESUME": "allow",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder.resolve()}/mlflow.db",
        "MLFLOW_EXPERIMENT_NAME": PROJECT,
        **({"MLFLOW_RUN_ID": identity["mlflow"]} if "mlflow" in identity else {}),
    }
    added = {name: value for name, value in own.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _offline_hub(names: Sequence[str]) -> Iterator[None]:
    """Keep Trackio from asking Hugging Face for the name of the user, unless it logs to a server."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    named = any(os.environ.get(name) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"))
    constants.HF_HUB_OFFLINE = before or ("trackio" in names and not named)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
