"""Settings for loading a model: device, precision, prompts, and permissions."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class LoadSettings:
    """Settings of loading; models without weights ignore them.

    Args:
        device: cpu, cuda, cuda:1 …; auto takes the first GPU, else the CPU.
        dtype: float32, bfloat16 or float16 (for GPUs without bfloat16) for the weights; stored keeps the checkpoint's
            own; auto is stored on a GPU and float32 on a CPU.
        trust_remote_code: Run Python files that come with the checkpoint; read them first.
        download: Download a checkpoint that is not on this machine; otherwise nothing is ever downloaded.
        prompts: A row of the prompt table, or a file of prompts; default: those that the checkpoint was trained with.
        attention: sdpa is fast; eager is needed for attention maps.
        base: Base model of an adapter, if it is not where the adapter says.
        adapter: merged adds an adapter's weights to its base when a report model is loaded, which makes every step faster;
            apart keeps both, so that bfloat16 weights are not rounded once more. Default: merged.
        cache: Keys and values of generation. static has a fixed size, so that a GPU replays its steps as a graph; growing
            takes one more token at every step. Default: static on a GPU if the model's family allows it, else growing.
        connection: Connection to a model behind an address.
    """

    device: str = "auto"
    dtype: Literal["auto", "stored", "float32", "float16", "bfloat16"] = "auto"
    trust_remote_code: bool = False
    download: bool = False
    prompts: str | None = None
    attention: Literal["sdpa", "eager"] = "sdpa"
    base: str | None = None
    adapter: Literal["merged", "apart"] | None = None
    cache: Literal["static", "growing"] | None = None
    connection: Connection = Connection()

    def __post_init__(self) -> None:
        for name, known in (
            ("dtype", ("auto", "stored", "float32", "float16", "bfloat16")),
            ("attention", ("sdpa", "eager")),
            ("adapter", (None, "merged", "apart")),
            ("cache", (None, "static", "growing")),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} is unknown; choose one of {', '.join(filter(None, known))}."
                )
        if not self.device:
            raise ConfigError("device is empty; give auto, cpu or cuda.")

    def but(self, **settings: Any) -> LoadSettings:
        """A copy with some settings changed; `ConfigError` for an unknown one."""
        known = [field.name for field in fields(self)]
        for name in settings:
            if name not in known:
                raise ConfigError(
                    f"loading has no setting '{name}'.{did_you_mean(name, known)} There are: {', '.join(known)}."
                )
        return replace(self, **settings)
