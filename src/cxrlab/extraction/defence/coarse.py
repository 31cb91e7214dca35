"""Reports in fixed sentences, so that their wording and degrees teach a copy nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS, Side
from cxrlab.extraction.defence.base import Defence
from cxrlab.extraction.defence.canonical import canonical, canonical_normal
from cxrlab.extraction.defence.claims import difference
from cxrlab.extraction.defence.sentences import Piece, pieces
from cxrlab.findings.reader import read

Kind = tuple[str, Side | None]
_ORDER = {name: place for place, name in enumerate(OBSERVATIONS)}


class Coarse(Defence):
    """Says each finding in one fixed sentence, in the order of the vocabulary.

    Kept are observation, presence, certainty, side and where a device ends; dropped are degree, size, place, change
    and every turn of phrase. Two of a kind on one side keep their places, or they would be taken for one. A sentence
    that has no fixed form, or that was not understood, is kept word for word: it leaks, and a finding that was lost
    with it would be worse. So is a whole report where the fixed sentences together would be read otherwise than it.
    """

    name = "coarse"
    drops: ClassVar[tuple[str, ...]] = ("location", "severity", "size_mm", "change", "tip_mm")

    def reword(self, report: str) -> str:
        """The report in fixed sentences; doing it twice changes nothing more."""
        said = [piece for piece in pieces(read(report)) if piece.findings or piece.normal or piece.unread]
        told = Counter(_kind(finding) for piece in said for finding in piece.findings if finding.present)
        several = frozenset(kind for kind, count in told.items() if count > 1)
        fixed: dict[tuple[int, int, str], int] = {}
        kept: list[str] = []
        for piece in said:
            sentences = self._fixed(piece, several)
            if sentences is None:
                kept.append(piece.text)
                continue
            for place, sentence, present in sentences:
                # Told twice is kept twice for what is present, since it may be two things.
                fixed[(not present, place, sentence)] = fixed.get((not present, place, sentence), 0) * present + 1
        text = " ".join([*(key[2] for key in sorted(fixed) for _ in range(fixed[key])), *dict.fromkeys(kept)])
        return report if difference(report, text, self.drops) else text

    def _fixed(self, piece: Piece, several: Collection[Kind]) -> list[tuple[int, str, bool]] | None:
        """(place in the order, sentence, present) for everything a sentence says; None where something has no form."""
        if piece.unread:
            return None
        rows = []
        for finding in piece.findings:
            placed = finding.present and _kind(finding) in several
            drops = tuple(name for name in self.drops if name != "location") if placed else self.drops
            sentence = canonical(replace(finding, span=None), drops)
            if sentence is None:
                return None
            rows.append((_ORDER[finding.observation], sentence, finding.present))
        for words in piece.normal:
            known = canonical_normal(words)
            if known is None:
                return None
            rows.append((len(_ORDER), known[1], False))
        return rows


def _kind(finding: Finding) -> Kind:
    return finding.observation, finding.side


class Plain(Coarse):
    """The same with every detail kept: degree, size, place and change in fixed words.

    Less is hidden than by `Coarse`, and nobody loses anything but turns of phrase.
    """

    name = "plain"
    drops = ()
