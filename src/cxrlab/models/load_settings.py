"""How a checkpoint is opened: where it runs, in which precision, with which prompts, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from cxrlab.core.endpoints import Connection
from cxrlab.core.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class LoadSettings:
    """Settings of loading; models that have no weights pass over them.

    Args:
        device: cpu, cuda, cuda:1 …; auto takes the first GPU, else the processor.
        dtype: float32 or bfloat16 for the weights; auto keeps the checkpoint's own on a GPU, float32 on a processor.
        trust_remote_code: Run Python files that come with the checkpoint; read them first.
        download: Fetch a checkpoint that is not on this machine; otherwise nothing is ever fetched.
        prompts: A row of the prompt table, or a file of prompts; what the checkpoint was trained with when left out.
        attention: sdpa is fast; eager also tells which patches a word looked at.
        base: Model that an adapter stands on, when it is not where the adapter says.
        connection: How a model behind an address is asked.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    trust_remote_code: bool = False
    download: bool = False
    prompts: str | None = None
    attention: Literal["sdpa", "eager"] = "sdpa"
    base: str | None = None
    connection: Connection = Connection()

    def __post_init__(self) -> None:
        for name, known in (("dtype", ("auto", "float32", "bfloat16")), ("attention", ("sdpa", "eager"))):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}={getattr(self, name)!r} is unknown; choose one of {', '.join(known)}.")
        if not self.device:
            raise ConfigError("device is empty; give auto, cpu or cuda.")

    def but(self, **settings: Any) -> LoadSettings:
        """The same with some settings changed; an unknown one is a `ConfigError` with the nearest."""
        known = [field.name for field in fields(self)]
        for name in settings:
            if name not in known:
                raise ConfigError(
                    f"loading has no setting '{name}'.{did_you_mean(name, known)} There are: {', '.join(known)}."
                )
        return replace(self, **settings)
