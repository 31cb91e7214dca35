"""Findings while later words may still add to them, and the ends of devices."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.records import Finding, Span
from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Certainty, Change, Presence, Severity, Side
from cxrlab.findings.reading.attributes import Attributes, ModifierGroup
from cxrlab.findings.reading.phrase_tables import Kind
from cxrlab.findings.reading.phrases import Phrase
from cxrlab.findings.reading.statements import Statement


class FindingBuilder:
    """A finding whose fields can still be set."""

    __slots__ = (
        "absent", "anchor", "change", "first", "last", "location", "name", "possible", "severity", "side", "size",
        "tip", "tip_mm", "tips",
    )  # fmt: skip

    def __init__(self, name: str, statement: Statement, own: Attributes, group: ModifierGroup | None) -> None:
        self.name = name
        self.anchor = statement.anchor
        self.absent = statement.absent
        self.possible = statement.possible
        self.side: Side | None = statement.side or (group.side if group else None)
        stated = group.locations[0] if group and group.locations else None
        self.location: str | None = statement.location or stated
        self.severity: Severity | None = (group.severity if group else None) or own.severity or statement.severity
        if statement.normal and statement.absent:
            self.severity = None  # "grossly normal" has no severity
        self.change: Change | None = statement.change or (None if statement.absent else own.change)
        if statement.absent and own.seen_before:
            self.change = Change.RESOLVED  # "the previously seen effusion is not seen"
        self.size = own.size
        self.tips: list[str] = []  # all places that its end was said to pass or reach
        self.tip: str | None = None
        self.tip_mm: float | None = None
        self.first, self.last = own.first, own.last  # tokens

    def reach(self, tip: str) -> None:
        """Note a place that a device was said to pass or reach, and where it then ends."""
        self.tips.append(tip)
        if self.name == "other device":
            self.name = "central venous catheter"  # a catheter that ends in a great vein is one
        latest = self.tips[::-1]
        if self.name != "pacemaker":
            # A tube that leaves the image was seen to reach what was named before.
            self.tip = next((place for place in latest if place != "beyond image"), tip)
        elif {"right atrium", "right ventricle"} <= set(latest):
            self.tip = "right atrium and right ventricle"
        else:
            self.tip = next((place for place in latest if place in TIPS["pacemaker"]), None)

    def finding(self, span: Span) -> Finding:
        """The finished record."""
        return Finding(
            observation=self.name,
            presence=Presence.ABSENT if self.absent else Presence.PRESENT,
            certainty=Certainty.POSSIBLE if self.possible else Certainty.CERTAIN,
            side=self.side,
            location=self.location,
            severity=self.severity,
            size_mm=self.size,
            change=self.change,
            tip=self.tip,
            tip_mm=self.tip_mm,
            span=span,
        )


def place_tips(
    phrases: Sequence[Phrase], builders: Sequence[FindingBuilder], earlier: Sequence[FindingBuilder]
) -> None:
    """Set where devices end; a sentence about "the tip" alone is about the last device of the earlier sentences."""
    for builder in builders:
        if builder.name in TIPS and builder.location in TIPS[builder.name] and not builder.absent:
            builder.tip, builder.location = builder.location, None
    for index, phrase in enumerate(phrases):
        if phrase.kind is Kind.TIP and phrase.rule.tip:
            devices = _devices_ending(phrase.rule.tip, index, builders, earlier)
            if not devices and phrase.rule.side:
                # Where no device ends, the place is that of the finding before it: "foreign body in the right main bronchus".
                last = next((builder for builder in reversed(builders) if builder.anchor < index), None)
                if last and last.side is None and OBSERVATIONS[last.name].sided and last.name not in TIPS:
                    last.side = phrase.rule.side
            for builder in devices:
                builder.reach(phrase.rule.tip)
        elif phrase.kind is Kind.ABOVE_CARINA:
            sizes = (one.value for one in reversed(phrases[max(0, index - 3) : index]) if one.kind is Kind.UNIT)
            height = next(sizes, None)
            for builder in _devices_ending("above carina", index, builders, earlier):
                builder.tip, builder.tip_mm, builder.size = builder.tip or "above carina", height, None


def _devices_ending(
    tip: str, index: int, builders: Sequence[FindingBuilder], earlier: Sequence[FindingBuilder]
) -> list[FindingBuilder]:
    """The device that ends there: the nearest before, else the next after, else the last of the earlier sentences."""
    fitting = [builder for builder in builders if tip in _possible_tips(builder.name)]
    before = [builder for builder in fitting if builder.anchor < index]
    after = [builder for builder in fitting if builder.anchor > index]
    if before:
        return [builder for builder in before if builder.anchor == before[-1].anchor]
    if after or builders:
        return after[:1]
    devices = [builder for builder in earlier[-3:] if builder.name in TIPS]
    return [builder for builder in devices[-1:] if tip in _possible_tips(builder.name)]


def _possible_tips(name: str) -> tuple[str, ...]:
    tips = TIPS.get("central venous catheter" if name == "other device" else name, ())
    return (*tips, "right atrium") if name == "pacemaker" else tips
