"""What an attacker may want, by name, and what he wishes a report to say."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.errors import ConfigError
from cxrlab.core.vocabulary import observation
from cxrlab.models.baselines import REPORTS

REPORT, ANSWERS, EMBEDDING = "report", "answers", "embedding"
TARGET, REMOVE, INVENT = "target", "remove", "invent"
BY_WISH = (TARGET, REMOVE, INVENT)
AIMS = (REPORT, ANSWERS, EMBEDDING, *BY_WISH)


@dataclass(frozen=True)
class Wishes:
    """What the aims target, remove and invent want.

    Args:
        report: For target: the report that should be written.
        remove: For remove: the observation that should disappear; the first finding of each clean report when left out.
        invent: For invent: the observation that should appear.
    """

    report: str = REPORTS["normal"]
    remove: str | None = None
    invent: str = "pneumothorax"

    def __post_init__(self) -> None:
        if not self.report.strip():
            raise ConfigError("wishes.report is empty; give the report that the attacker wishes for.")
        for name in (self.remove, self.invent):
            if name is not None:
                observation(name)  # refuses what the vocabulary does not hold
