"""The view of a MIMIC-CXR film, from the three columns that may tell it.

Only an upright or lying film with a level beam counts as PA or AP. Decubitus films (AP LLD and its
likes), lordotic ones (AP AXIAL) and obliques are `other`, although some of them are frontal in their
geometry: who asks for AP and PA wants the standard film. The source's own word stays with the film.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cxrlab.core.vocabulary import View

VIEW_ELSEWHERE = "view told by the view code or the procedure, not by ViewPosition"
VIEW_NOT_TOLD = "view not told by the source; the image is kept as other"
VIEW_UNKNOWN_WORD = "view given by a word that is not known; the image is kept as other"

_POSITIONS = {
    "PA": View.PA,
    "AP": View.AP,
    "FRONTAL": View.FRONTAL,
    **dict.fromkeys(("LATERAL", "LL", "RL", "LAT", "LLAT", "RLAT", "XTABLE LATERAL"), View.LATERAL),
    **dict.fromkeys(("AP AXIAL", "PA AXIAL", "AP LLD", "AP RLD", "PA LLD", "PA RLD", "LLD", "RLD"), View.OTHER),
    **dict.fromkeys(("LAO", "RAO", "LPO", "RPO", "SWIMMERS"), View.OTHER),
}
_CODES = {
    "posteroanterior": View.PA,
    "anteroposterior": View.AP,
    **dict.fromkeys(("lateral", "leftlateral", "rightlateral"), View.LATERAL),
}
# A procedure of two images does not tell which of them this is, so only the words for a single one count.
_PORTABLE_AP = re.compile(r"\bPORTABLE\W+AP\b|\bAP\W+PORTABLE\b", re.IGNORECASE)


class ImageView(NamedTuple):
    """A view, the source's word where it says more than the view does, and a remark where one is due."""

    view: View
    word: str | None = None
    remark: str | None = None


def view_of(position: str, code: str = "", procedure: str = "") -> ImageView:
    """The view by ViewPosition; where that is blank, by the meaning of the view code, then by the procedure.

    Args:
        position: ViewPosition ("PA", "LL", "AP AXIAL", blank).
        code: ViewCodeSequence_CodeMeaning ("postero-anterior").
        procedure: PerformedProcedureStepDescription ("CHEST (PORTABLE AP)").
    """
    word = " ".join(position.upper().split())
    if word:
        view = _POSITIONS.get(word)
        if view is None:
            return ImageView(View.OTHER, word, VIEW_UNKNOWN_WORD)
        return ImageView(view, None if word in (View.PA, View.AP) else word)
    named = _CODES.get(re.sub(r"[^a-z]", "", code.lower()))
    if named is None and not code and _PORTABLE_AP.search(procedure):
        named = View.AP
    if named is not None:
        return ImageView(named, None, VIEW_ELSEWHERE)
    return ImageView(View.OTHER, code or None, VIEW_ELSEWHERE if code else VIEW_NOT_TOLD)
