"""The guard of a served model: detectors of the extraction audit before it, and a defence's wording after it.

An image that a detector flags is refused. An account that has sent too many of them in a short time is blocked until
the operator unblocks it; one flagged image never blocks. Other state of an account is lost when the server stops.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.extraction.defence.base import Defence, FindingChanged, open_defence
from cxrlab.extraction.detection.detect import LiveMonitor, calibrated
from cxrlab.serving.accounts import BlockedAccount, BlockedAccounts
from cxrlab.serving.config import GuardConfig

if TYPE_CHECKING:
    from cxrlab.extraction.detection.base import Detector
    from cxrlab.extraction.detection.features import ImageEncoder
    from cxrlab.extraction.records import Pixels
    from cxrlab.models.load_settings import LoadSettings

REFUSED_BY_GUARD, ACCOUNT_BLOCKED, PASSED = "refused_by_guard", "account_blocked", "passed"
_MESSAGES = {
    REFUSED_BY_GUARD: "this picture does not look like those that this server is meant for; check the upload and send "
    "it again, or ask the operator of the server.",
    ACCOUNT_BLOCKED: "this account is blocked after several pictures unlike those that this server is meant for; ask "
    "its operator to unblock it.",
}


@dataclass(frozen=True)
class Refusal:
    """Why an image gets no report."""

    code: str  # `refused_by_guard` for this image, `account_blocked` for everything the account sends
    message: str  # one sentence for the client, which reveals nothing of images or detectors


class Guard:
    """Checks every image before the model receives it; may be shared by threads.

    Args:
        detectors: Calibrated detectors by name.
        encoder: The encoder that they were calibrated with, if any.
        defence: Changes the wording of reports.
    """

    def __init__(
        self,
        detectors: Mapping[str, Detector],
        encoder: ImageEncoder | None,
        blocked: BlockedAccounts,
        defence: Defence | None = None,
    ) -> None:
        self._monitor, self._blocked, self._defence = LiveMonitor(detectors, encoder), blocked, defence
        self._lock = threading.Lock()
        self._pictures: Counter[str] = Counter()
        self._blocked_here: set[str] = set()
        self._counts: Counter[str] = Counter({PASSED: 0, REFUSED_BY_GUARD: 0, ACCOUNT_BLOCKED: 0})

    def check(self, pixels: Pixels, account: str) -> Refusal | None:
        """None if the model may receive an image (uint8 [H, W]), else why not."""
        code = self._code(pixels, account)
        with self._lock:
            self._counts[code] += 1
        return None if code == PASSED else Refusal(code, _MESSAGES[code])

    def worded(self, report: str) -> str:
        """The report in the wording of the defence, if there is one.

        Raises:
            RunError: If the wording would change a finding; the message contains nothing of the report.
        """
        if self._defence is None:
            return report
        try:
            return self._defence.worded(report)
        except FindingChanged:
            raise RunError(
                f"the defence '{self._defence.name}' cannot reword this report without changing a finding, so it was "
                "withheld; serve without this defence, or report the defect."
            ) from None

    def unblock(self, account: str) -> bool:
        """Unblock an account and reset its state; whether it was blocked."""
        removed = self._blocked.remove(account)
        self._reset(account)
        return removed

    def blocked_accounts(self) -> list[BlockedAccount]:
        """All blocked accounts, in the order of their blocks."""
        return self._blocked.entries()

    @property
    def counts(self) -> Mapping[str, int]:
        """Images since the server started: `passed`, and each code of a refusal."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Close the file of blocked accounts; closing twice is allowed."""
        self._blocked.close()

    def _code(self, pixels: Pixels, account: str) -> str:
        if account in self._blocked:  # from disk, so that a block outlives the server
            with self._lock:
                self._blocked_here.add(account)
            return ACCOUNT_BLOCKED
        with self._lock:
            unblocked = account in self._blocked_here
        if unblocked:  # unblocked by another process
            self._reset(account)
        verdict = self._monitor.update(pixels, account)
        with self._lock:
            self._pictures[account] += 1
            sent = self._pictures[account]
        if not verdict.alarms:
            return REFUSED_BY_GUARD if verdict.flagged else PASSED
        self._blocked.add(account, verdict.alarms, sent)
        with self._lock:
            self._blocked_here.add(account)
        return ACCOUNT_BLOCKED

    def _reset(self, account: str) -> None:
        self._monitor.reset(account)
        with self._lock:
            self._blocked_here.discard(account)
            self._pictures.pop(account, None)


def open_guard(config: GuardConfig, store: Path, loading: LoadSettings | None = None) -> Guard:
    """A guard calibrated on benign images; `store` keeps the blocked accounts and the features of those images."""
    if config.benign is None:
        raise ConfigError("a guard's thresholds come from benign images; name a corpus of them with --guarding.benign.")
    detectors, encoder = calibrated(config.detection(config.benign, loading), store)
    for name, one in detectors.items():
        if one.per_image:
            one.count = max(one.count, config.least_flagged)
        if one.count > config.account_queries:
            raise DataError(
                f"the detector '{name}' would block no account within {config.account_queries} queries; give a "
                "higher account_bound, a lower image_bound, or benign images of a larger corpus."
            )
    defence = None
    if config.defence is not None:
        defence, _ = open_defence(config.defence, config.wording(config.benign), config.seed)
    return Guard(detectors, encoder, BlockedAccounts(store), defence)
