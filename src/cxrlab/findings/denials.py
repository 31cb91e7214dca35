"""True negatives for one report: normal statements by region and lists of what is absent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cxrlab.findings.cases import Visit
from cxrlab.findings.grammar import agreed, listed, without_article
from cxrlab.findings.negatives import NORMAL, PERTINENT, circumstances, deniable, region_of
from cxrlab.findings.statements import Statement
from cxrlab.findings.words import Words


class Denier:
    """Hands out negatives that are true of a visit and says none of them twice."""

    def __init__(self, visit: Visit, words: Words) -> None:
        """Deny what `visit` does not show, in the words of `words`."""
        self.words = words
        self.present = circumstances(visit.present)
        # What has resolved is said elsewhere; repeating it as a plain negative would be padding.
        self.said = {finding.observation for finding in visit.findings if not finding.present}

    def normal(self, region: str) -> list[Statement]:
        """One normal statement for the region, or none where it would be false or repeat something."""
        kinds = [
            kind
            for kind, row in NORMAL.items()
            if row.region == region and self.present.isdisjoint(row.requires) and self.said.isdisjoint(row.states)
        ]
        if not kinds:
            return []
        kind = self.words.pick(kinds)
        states = NORMAL[kind].states
        self.said.update(states)
        return [Statement.whole(self.words.pick(self.words.lexicon.normal[kind]), *states)]

    def denial(self, regions: Sequence[str], most: int) -> list[Statement]:
        """One list of up to `most` pertinent negatives from these regions, or none."""
        open_names = {
            name: weight
            for name, weight in PERTINENT.items()
            if name not in self.said and region_of(name) in regions and deniable(name, self.present)
        }
        # Weighted sampling without replacement: the largest of u^(1/w) win.
        keys = {name: self.words.rng.random() ** (1 / weight) for name, weight in open_names.items()}
        count = 1 + int(self.words.rng.random() * most)
        chosen = [name for name in sorted(keys, key=keys.__getitem__, reverse=True)[:count] if keys[name] > 0.2]
        return [self._list(chosen)] if chosen else []

    def whole(self, sentences: list[Statement], *, headed: bool) -> list[Statement]:
        """A normal film's sentences with a verdict on the whole film where one is due."""
        short = len(sentences) < 2
        if not short and (headed or not self.words.chance(0.3)):
            return sentences
        verdict = Statement(self.words.pick(self.words.lexicon.normal["whole"]))
        return [verdict, *sentences] if self.words.chance(0.6) else [*sentences, verdict]

    def _list(self, names: Sequence[str]) -> Statement:
        self.said.update(names)
        words = self.words
        chosen = [words.pick(words.lexicon.observations[name].absent) for name in names]
        frames = [pair for pair in words.lexicon.denials if len(chosen) > 1 or pair[1] != "nor"]
        frame, word = words.pick(frames)
        before, slot, after = re.split(r"\{(list|bare)\}", frame)
        items = [item.removeprefix("+ ") for item in chosen]
        items = [without_article(item) for item in items] if slot == "bare" else items
        # A verb agrees with the item next to it, or with all of them when they are joined by "and".
        summed = word == "and" and len(items) > 1
        before = agreed(before, summed or chosen[0].startswith("+"))
        after = agreed(after, summed or chosen[-1].startswith("+"))
        text = before + listed(items, word) + after
        marks = []
        cursor = len(before)
        for name, item in zip(names, items, strict=True):
            start = text.index(item, cursor)
            cursor = start + len(item)
            marks.append((start, cursor, name))
        return Statement(text, tuple(marks))
