"""The parts of a study: runs with checked settings, each made once however many variants share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.config import parse_group, raise_problems
from cxrlab.core.json_values import dumps


@dataclass(frozen=True)
class Part:
    """One run of a study.

    Args:
        kind: What is done: the name of a stage.
        seed: Of the variants that use it.
        folder: Its run folder within the study, named after the first variant that needs it.
        config: Its checked settings.
        needs: Folders of the parts that must be made before it.
    """

    kind: str
    seed: int
    folder: str
    config: Any
    needs: tuple[str, ...] = ()


class Parts:
    """Collects parts by their settings, so that what is equal is made once, and everything that is wrong with them."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self.problems: list[str] = []

    def once(
        self,
        kind: str,
        seed: int,
        folder: str,
        cls: type[Any],
        settings: Mapping[str, Any],
        place: str,
        needs: tuple[str, ...] = (),
    ) -> Part:
        """The part with these settings, new or found among the earlier ones.

        Args:
            kind: What is done.
            seed: Of the variant.
            folder: Its run folder, if it is new.
            cls: Config that the settings must make; what is wrong with them is noted, and the part has no config.
            settings: As YAML gives them.
            place: What they are, for the sentences.
            needs: Folders of the parts that must be made before it.
        """
        key = dumps([kind, seed, settings])
        if key not in self._parts:
            config, problems = parse_group(cls, settings, place)
            self.problems += problems
            self._parts[key] = Part(kind, seed, folder, config, needs)
        return self._parts[key]

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts.values())

    def checked(self) -> tuple[Part, ...]:
        """All parts, in the order in which they can be made; one `ConfigError` with every problem there is."""
        raise_problems(list(dict.fromkeys(self.problems)))
        return tuple(self)


def raise_absent_models(names: Iterable[str | None], out: Path) -> None:
    """Refuse a model that is named and not there, before the first part is made.

    Args:
        names: Of models; those that are neither hf: nor builtin: are left to whoever opens them.
        out: Folder of the study; what it makes itself is not there yet.
    """
    from cxrlab.models.components import folder_of

    for name in sorted({name for name in names if name and name.startswith(("hf:", "builtin:"))}):
        if not Path(name.removeprefix("hf:")).is_relative_to(out):
            folder_of(name)
