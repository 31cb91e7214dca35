"""The guard before a served model: the extraction audit's detectors look at every picture first, its defence at words.

A picture that a detector flags is refused, and an account that has sent too many of them in a short time is stopped
for good: it gets no further report until a person forgives it. One flagged picture never stops anybody. What the guard
knows of an account besides a stop begins anew when the server does.
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
from cxrlab.serving.accounts import BlockedAccounts, Stop
from cxrlab.serving.config import GuardConfig

if TYPE_CHECKING:
    from cxrlab.extraction.detection.base import Detector
    from cxrlab.extraction.detection.features import ImageEncoder
    from cxrlab.extraction.records import Pixels
    from cxrlab.models.load_settings import LoadSettings

REFUSED_BY_GUARD, ACCOUNT_BLOCKED, PASSED = "refused_by_guard", "account_blocked", "passed"
_MESSAGES = {
    REFUSED_BY_GUARD: "this picture does not look like those that this server is meant for; check the upload and send "
    "it again, or ask whoever runs the server.",
    ACCOUNT_BLOCKED: "this account was stopped after several pictures unlike those that this server is meant for; ask "
    "whoever runs it to look into that.",
}


@dataclass(frozen=True)
class Refusal:
    """Why a picture gets no report.

    Args:
        code: `refused_by_guard` for this picture, `account_blocked` for everything the account sends.
        message: One sentence for the client; it tells nothing of an image and nothing of the detectors.
    """

    code: str
    message: str


class Guard:
    """Looks at every picture before the model does; threads may share it.

    Args:
        detectors: Calibrated ones by name.
        encoder: The one that they were calibrated with; None where they were calibrated without.
        book: Of stopped accounts.
        defence: Chooses the words of reports; None leaves them as they are.
    """

    def __init__(
        self,
        detectors: Mapping[str, Detector],
        encoder: ImageEncoder | None,
        book: BlockedAccounts,
        defence: Defence | None = None,
    ) -> None:
        self._watch, self._book, self._defence = LiveMonitor(detectors, encoder), book, defence
        self._lock = threading.Lock()
        self._pictures: Counter[str] = Counter()
        self._stopped_here: set[str] = set()
        self._told: Counter[str] = Counter({PASSED: 0, REFUSED_BY_GUARD: 0, ACCOUNT_BLOCKED: 0})

    def look(self, pixels: Pixels, account: str) -> Refusal | None:
        """Whether a picture may be shown to the model: None, or why not.

        Args:
            pixels: uint8 [H, W], 255 is white, at its own size.
            account: Who asks. A stop shuts out everybody who asks under this name.
        """
        code = self._code(pixels, account)
        with self._lock:
            self._told[code] += 1
        return None if code == PASSED else Refusal(code, _MESSAGES[code])

    def worded(self, report: str) -> str:
        """The report in the words of the defence; as it is where there is none.

        Raises:
            RunError: Where those words would change a finding; nothing is handed out then, and the message, which may
                go into a log, holds nothing of the report.
        """
        if self._defence is None:
            return report
        try:
            return self._defence.worded(report)
        except FindingChanged:
            raise RunError(
                f"the defence '{self._defence.name}' cannot put this report into its words without changing a "
                "finding, so nothing was handed out; serve without it, or tell whoever wrote it."
            ) from None

    def forgive(self, account: str) -> bool:
        """Begin anew with an account; whether it was stopped."""
        struck = self._book.strike(account)
        self._begin_anew(account)
        return struck

    def stops(self) -> list[Stop]:
        """Every stopped account, the first one stopped first."""
        return self._book.stops()

    @property
    def counts(self) -> Mapping[str, int]:
        """Pictures since the server began: `passed`, and each code of a refusal."""
        with self._lock:
            return dict(self._told)

    def close(self) -> None:
        """Close the book; closing twice is allowed."""
        self._book.close()

    def _code(self, pixels: Pixels, account: str) -> str:
        if account in self._book:  # on file, so that a stop outlives the server
            with self._lock:
                self._stopped_here.add(account)
            return ACCOUNT_BLOCKED
        with self._lock:
            forgiven = account in self._stopped_here
        if forgiven:  # struck out by another process
            self._begin_anew(account)
        verdict = self._watch.see(pixels, account)
        with self._lock:
            self._pictures[account] += 1
            sent = self._pictures[account]
        if not verdict.alarms:
            return REFUSED_BY_GUARD if verdict.flagged else PASSED
        self._book.add(account, verdict.alarms, sent)
        with self._lock:
            self._stopped_here.add(account)
        return ACCOUNT_BLOCKED

    def _begin_anew(self, account: str) -> None:
        self._watch.forgive(account)
        with self._lock:
            self._stopped_here.discard(account)
            self._pictures.pop(account, None)


def open_guard(config: GuardConfig, store: Path, loading: LoadSettings | None = None) -> Guard:
    """A guard that is calibrated on benign images and knows whom it has stopped before.

    Args:
        config: Settings; without a benign corpus they are a `ConfigError`.
        store: Folder of the book of stopped accounts, and of what was measured of the images, for the next time.
        loading: How an encoder is loaded.
    """
    if config.benign is None:
        raise ConfigError("a guard's thresholds come from benign images; name a corpus of them with --guarding.benign.")
    detectors, encoder = calibrated(config.detection(config.benign, loading), store)
    for name, one in detectors.items():
        if one.per_image:
            one.count = max(one.count, config.least_flagged)
        if one.count > config.account_queries:
            raise DataError(
                f"the detector '{name}' would stop no account within {config.account_queries} queries; give a "
                "higher account_bound, a lower image_bound, or benign images of a larger corpus."
            )
    defence = None
    if config.defence is not None:
        defence, _ = open_defence(config.defence, config.wording(config.benign), config.seed)
    return Guard(detectors, encoder, BlockedAccounts(store), defence)
