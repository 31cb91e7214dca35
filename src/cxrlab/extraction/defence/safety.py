"""The check that a defence has to pass on benign reports before it is ever used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrlab.core.errors import DataError
from cxrlab.extraction.defence.base import Defence, DefenceRejected, FindingChanged


@dataclass(frozen=True)
class SafetyReport:
    """A defence that changed no finding.

    Args:
        defence: Its name.
        n: Reports on which it was tried.
        reworded: Reports whose words it changed.
        most_unsafe: Upper end of the exact one-sided 95 % interval of the share of reports whose findings it changes,
            given that none of n was.
    """

    defence: str
    n: int
    reworded: int
    most_unsafe: float


def check_on_benign(defence: Defence, reports: Sequence[str]) -> SafetyReport:
    """Try a defence on reports of benign images.

    Args:
        defence: To be tried; its refusals are no matter here, since a refusal says nothing of an image.
        reports: What the model wrote for benign images, or reference reports; at least one.

    Raises:
        DefenceRejected: At the first report whose findings it changes, drops or adds to.
    """
    if not reports:
        raise DataError(f"the defence '{defence.name}' cannot be checked without a report; give benign images.")
    reworded = 0
    for place, report in enumerate(reports):
        try:
            reworded += defence.worded(report) != report
        except FindingChanged as error:
            raise DefenceRejected(
                f"the defence '{defence.name}' is rejected and was not used: on benign report {place + 1} of "
                f"{len(reports)} {error}"
            ) from None
    return SafetyReport(defence.name, len(reports), reworded, most_unsafe=1 - 0.05 ** (1 / len(reports)))
