"""A mark in the choice of words: of forms that may stand for one another a secret key picks one for each content."""

from __future__ import annotations

import hashlib
import hmac

from cxrlab.extraction.defence.base import Defence
from cxrlab.extraction.defence.claims import difference
from cxrlab.extraction.defence.sentences import pieces
from cxrlab.extraction.defence.wordings import WAYS, slot
from cxrlab.findings.reader import read


def keyed_way(key: bytes, context: str) -> int:
    """Which of the `WAYS` forms the key picks for a context; the same every time, and nobody can tell it without."""
    digest = hmac.new(key, context.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") % WAYS  # WAYS divides 2^64, so that every form is as likely


class Watermark(Defence):
    """Writes each sentence in the form that the key picks for what it is about.

    The same content gets the same form in every report, so that a copy that learns to write like the model learns the
    mark with it. Nothing that was read of a sentence may change: one that would is left as it was, and so is a report.

    Args:
        key: The secret; see `keys.load_key`.
    """

    name = "watermark"

    def __init__(self, key: bytes) -> None:
        self._key = key

    def reword(self, report: str) -> str:
        """The marked report; doing it twice changes nothing more."""
        text, shift = report, 0
        for piece in pieces(read(report)):
            choice = slot(piece)
            if choice is None:
                continue
            form = choice.forms[keyed_way(self._key, choice.context)]
            if difference(piece.text, form):
                continue
            start = piece.start + shift
            text = text[:start] + form + text[start + len(piece.text) :]
            shift += len(form) - len(piece.text)
        return report if difference(report, text) else text
