"""How judges put their questions: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, nearest
from cxrlab.metrics.judging.table import JUDGES

PAIRWISE = "pairwise"
KINDS = (*JUDGES, PAIRWISE)


@dataclass(frozen=True)
class JudgeSettings:
    """What judges by language models are told, and how long they may answer.

    Args:
        prompts: Other wordings, each as KIND=FILE (chexprompt=wording.yaml); the built-in ones when left out.
        max_tokens: Longest answer, thoughts included; 1,024 for counts and 512 for grades and pairs when left out.
    """

    prompts: tuple[str, ...] = ()
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens={self.max_tokens} is not usable; give a whole number of at least 1.")
        kinds = [_parts(entry)[0] for entry in self.prompts]
        if twice := next((kind for kind in kinds if kinds.count(kind) > 1), None):
            raise ConfigError(f"prompts has two wordings for {twice}; give one.")

    def prompt(self, kind: str) -> Path | None:
        """The file with another wording for a kind of judge; None for the built-in."""
        return dict(map(_parts, self.prompts)).get(kind)


def _parts(entry: str) -> tuple[str, Path]:
    kind, equals, file = (part.strip() for part in entry.partition("="))
    if kind not in KINDS or not equals or not file:
        raise ConfigError(
            f"prompts has '{entry}'; write KIND=FILE, where KIND is one of {', '.join(KINDS)}.{nearest(kind, KINDS)}"
        )
    return kind, Path(file)
