"""`cxrlab models merge`: an adapter into the weights it stands on."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result
from cxrlab.models.hf.adapters import MergeConfig


def merge(adapter: str, config: MergeConfig, out: Path) -> Result:
    """Add an adapter into the weights of its base and write a whole checkpoint.

    The result writes what base and adapter together write, and needs neither. OUT appears whole or not at all.

    Args:
        adapter: Folder of the adapter, such as a fine-tuning run's checkpoint.
        config: Settings.
        out: The folder to make.
    """
    from cxrlab.models.hf.adapters import merge as run

    done = run(adapter, out, config)
    return Result(f"{out}: {done.parameters:,} parameters in {done.dtype}, {done.adapter} on {done.base}", done)
