"""The form of a defence: the base class keeps the promise to the patient, a subclass has the idea."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from cxrlab.core.errors import CxrlabError
from cxrlab.extraction.defence.claims import DROPPABLE, difference
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels


class FindingChanged(CxrlabError):
    """A defence would have handed out a report that claims something else than the model's."""


class DefenceRejected(CxrlabError):
    """A defence that may not be used, with the first example that shows why."""


@dataclass(frozen=True)
class Answer:
    """What is handed out.

    Args:
        text: The report, perhaps in other words; of a refusal the sentence that says so.
        refused: Whether there is no report.
    """

    text: str
    refused: bool = False


class Defence(ABC):
    """Stands between a report model and who asks it.

    A subclass says which pictures are answered (`admits`) and in which words (`reword`). Whatever it does, no finding
    is changed, dropped or added: the base class reads both texts and raises before a changed one is handed out.
    """

    name: ClassVar[str]
    refusal: ClassVar[str] = "This request is not answered."
    # Details of present findings that the idea leaves out on purpose; names of `claims.DROPPABLE`.
    drops: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if unknown := set(cls.drops) - set(DROPPABLE):
            raise TypeError(f"{cls.__name__} may not drop {', '.join(sorted(unknown))}; only {', '.join(DROPPABLE)}")
        if read(cls.refusal).has_statements:
            raise TypeError(f"the refusal of {cls.__name__} says something of an image: {cls.refusal!r}")

    def admits(self, asked: Pixels, account: str, number: int) -> bool:
        """Whether this picture is answered.

        Args:
            asked: uint8 [H, W], 255 is white.
            account: Who asks.
            number: Queries that reached the defence before this one, by anybody: the clock.
        """
        return True

    def reword(self, report: str) -> str:
        """The report in the words of the defence."""
        return report

    def count(self, account: str, number: int) -> None:  # noqa: B027 - most defences remember nothing
        """Take note of a query that was put before this process began; only a defence with a memory needs it."""

    @final
    def answer(self, asked: Pixels, report: str | Callable[[], str], account: str, number: int) -> Answer:
        """What is handed out for a picture.

        Args:
            asked: uint8 [H, W], 255 is white.
            report: What the model wrote, or a function that lets it write.
            account: Who asks.
            number: Queries before this one.

        Raises:
            FindingChanged: Where the words claim something else than the report.
        """
        if not self.admits(asked, account, number):
            return Answer(self.refusal, refused=True)
        return Answer(self.worded(report if isinstance(report, str) else report()))

    @final
    def worded(self, report: str) -> str:
        """The report in the words of the defence, after both were read and found to claim the same."""
        text = self.reword(report)
        if fault := difference(report, text, self.drops):
            raise FindingChanged(
                f"the defence '{self.name}' changed a finding: {fault}. Report: {report!r}; instead: {text!r}. "
                "Nothing was handed out."
            )
        return text
