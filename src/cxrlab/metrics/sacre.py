"""BLEU as sacreBLEU reports it, from counts of our own.

The package itself stays a test's oracle: importing it is cheap (0.08 s), but it brings six packages
into an install that should stay small, and it gives no row of counts a pair.
"""

from __future__ import annotations

from cxrlab.metrics.bleu import ORDER, counted, sacre_bleu
from cxrlab.metrics.ngrams import Shelf
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Metric, Tally
from cxrlab.metrics.text_tokens import words_13a

METRIC = Metric(
    name="bleu4:sacre",
    direction="higher",
    range=(0.0, 1.0),
    identity=None,
    undefined="pairs without a reference",
    conventions={"nrefs": "1", "case": "mixed", "eff": "no", "tok": "13a", "smooth": "exp", "unit": "0..1"},
    about="corpus BLEU-4 as sacreBLEU prints it, divided by 100",
    quirk="0 where no candidate has four words, even against itself; empty text scores 0",
)


class SacreBleu:
    """One metric; texts are remembered between batches."""

    metrics = (METRIC,)

    def __init__(self) -> None:
        self._shelf = Shelf(words_13a, ORDER)

    def tallies(self, batch: Batch) -> list[Tally]:
        """Corpus counts."""
        found = counted(batch, self._shelf)
        return [Tally(METRIC, found.rows, found.defined, sacre_bleu)]
