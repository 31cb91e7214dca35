"""The section of a page on extraction: what queries bought of a victim, from the threat to the pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.drawing import in_page
from cxrlab.render.extraction_drawings import CLEAN, PERTURBED, SHADES, copies_svg, curve_svg, map_svg
from cxrlab.render.extraction_pairs import pairs
from cxrlab.render.extraction_parts import FINDINGS, Copied, alarm, authorised, chapter, grouped, told
from cxrlab.render.extraction_tables import beside, observations, options, scores, variety
from cxrlab.render.folder import RunFolder, shortened
from cxrlab.render.html import section, text
from cxrlab.render.robustness_parts import folded, number, part

_CURVE = (
    "Each point is a surrogate that was trained anew from the first so many queries. Shade: interval by patient. "
    "Dashed: the victim itself."
)
_OPEN = 6  # headlines in the open; of more runs the table tells at a glance
_SILENT = (
    0.1  # share of answers without a word on an image from which a page warns; fewer stand in the table of variety
)


def extraction(runs: Sequence[RunFolder]) -> str:
    """Everything that extractions found; runs of one victim are set side by side."""
    return section("Extraction by queries", *map(_group, grouped(runs)))


def _group(copies: Sequence[Copied]) -> str:
    victim = shortened(str(copies[0].run.config.get("victim") or "the victim"))
    several = len(copies) > 1
    curve = curve_svg(copies)
    drawn = "".join(f"<div>{in_page(one)}</div>" for one in (copies_svg(copies), curve) if one)
    lone = "" if several and curve else " lone"
    note = f"<p class=small>{_CURVE}</p>" if curve else ""
    plots = f'<div class="plots{lone}">{drawn}</div>{note}' if drawn else ""
    warned = [f"{one.name}: {line}" if several else line for one in copies for line in warnings(one)]
    parts = [
        f"<h3>Victim: {text(victim)}</h3>",
        _threats(copies),
        alarm(warned),
        "".join(headline(one, several) for one in copies[:_OPEN]),
        folded(f"{len(copies) - _OPEN} more runs", "".join(headline(one, several) for one in copies[_OPEN:])),
        f"<p class=small>{_beneath(copies)}</p>",
    ]
    if several:
        parts += [chapter("Runs side by side", beside(copies) + plots)]
        parts += [folded(one.name, _rest(one)) for one in copies]
    else:
        parts += [chapter("Victim and copy", scores(copies[0].found)), chapter("Over the queries", plots)]
        parts.append(_rest(copies[0], alone=True))
    return f"<div class=victim>{''.join(parts)}</div>"


def _threats(copies: Sequence[Copied]) -> str:
    """Each different threat model with its leave, once."""
    boxes = [authorised(one.found.get("threat"), one.found.get("authorised")) for one in copies if one.asked]
    boxes = boxes or [authorised(copies[0].found.get("threat"), copies[0].found.get("authorised"))]
    return "".join(dict.fromkeys(boxes))


def _rest(one: Copied, alone: bool = False) -> str:
    """What is looked up of one run; victim and copy stand above where it is the only one."""
    found = one.found
    parts = [
        "" if alone else chapter("Victim and copy", scores(found)),
        chapter("Variety of the transcript", variety(found)),
        chapter("Map of the victim's sentences", sentence_map(one.run.sentences)),
        chapter("Pictures moved", pairs(one.run)),
        chapter("Options that were chosen", options(found)),
        observations(found),
    ]
    return "".join(parts)


def headline(one: Copied, several: bool = False) -> str:
    """So many queries bought so much of the victim's findings; above which floor, and for which price.

    Args:
        one: The run.
        several: Whether other runs stand on the page too, so that this one is named.
    """
    found = one.found
    share = told(part(found, "ratio", FINDINGS))
    spent = number(found.get("spent")) or 0
    queries = f"{text(int(spent))} {'query' if spent == 1 else 'queries'}"
    named = f"{text(one.name)}: " if several else ""
    said = f"{named}<b>{queries}</b> bought <b>{share}</b> of the victim's findings."
    if not one.asked:
        said = f"{named}the untouched surrogate has <b>{share}</b> of the victim's findings: the floor."
    whose = "copy" if one.asked else "surrogate"
    small = f"Findings F1 of the {whose} {told(part(found, 'surrogate', FINDINGS))}. "
    small += f"{_floor(one)}{_price(one)}{_probes(one)}" if one.asked else ""
    return f"<p class=bought>{said}<br><span class=small>{small}</span></p>"


def _probes(one: Copied) -> str:
    """What was paid for a way through a gate, where one was looked for."""
    probing = part(one.found, "probing")
    if not probing:
        return ""
    best = max((number(value) or 0.0 for value in part(probing, "passed").values()), default=0.0)
    return (
        f" {text(probing.get('queries'))} of the queries were probes: with {number(probing.get('dress')) or 0:g} of a "
        f"chest in every picture {best:.0%} were answered."
    )


def _beneath(copies: Sequence[Copied]) -> str:
    """What all headlines of a victim have in common."""
    found = copies[0].found
    said = (
        f"Findings F1 of the victim {told(part(found, 'victim', FINDINGS))}; {text(found.get('n'))} studies of "
        f"{text(found.get('patients'))} patients, intervals of 95 % by patient."
    )
    if any(one.asked and one.floor is None for one in copies):
        said += " The floor is told where a run with method none of the same surrogate is on this page."
    if not any(_price(one) for one in copies):
        said += " No price was set."
    return said


def _floor(one: Copied) -> str:
    """What the untouched surrogate reaches, where a run on the page tells."""
    if one.floor is None:
        return ""
    floor = part(one.floor.extraction, "surrogate", FINDINGS)
    low, high = number(part(one.found, "surrogate", FINDINGS).get("low")), number(floor.get("high"))
    if low is None or high is None:
        word = "whether the copy is above it is not known"
    else:
        word = "the copy is above it" if low > high else "the copy is not shown to be above it, the intervals overlap"
    return f"The untouched surrogate, the floor, reaches {told(floor)}: {word}. "


def _price(one: Copied) -> str:
    price, cost = part(one.run.config, "price"), part(one.found, "cost")
    if not any(number(price.get(key)) for key in ("per_query", "per_1k_tokens")):
        return ""
    least = "at least " if number(cost.get("unknown")) else ""
    amount = number(cost.get("amount"))
    return f"Price: {least}{'–' if amount is None else f'{amount:,.2f}'} {text(cost.get('currency'))}."


def warnings(one: Copied) -> list[str]:
    """What takes the ground from the figures of a run, in sentences; empty where nothing does."""
    found, said = one.found, part(one.found, "transcript")
    count = {key: int(number(found.get(key)) or 0) for key in ("spent", "budget", "refused", "lost")}
    out = []
    if found.get("untouched") and one.asked:
        out.append(f"Nothing was learnt ({found['untouched']}): the figures are those of the untouched surrogate.")
    if count["refused"]:
        rest = "" if found.get("untouched") else "; the copy learnt from the others"
        out.append(f"{count['refused']:,} of {count['spent']:,} queries were refused{rest}.")
    if count["lost"]:
        out.append(f"{count['lost']:,} units of the budget brought no answer and may have been charged.")
    if one.asked and count["spent"] < count["budget"]:
        out.append(f"Only {count['spent']:,} of {count['budget']:,} queries were spent.")
    silent, answers = (int(number(said.get(key)) or 0) for key in ("silent", "n"))
    if silent > _SILENT * answers:
        out.append(f"{silent:,} of {answers:,} answers say nothing of an image.")
    return out


def sentence_map(mapped: Mapping[str, Any]) -> str:
    """The map with its legend, and how far it can be trusted."""
    drawn = map_svg(mapped)
    if not drawn:
        return ""
    kinds = ((CLEAN, "●", "○", "untouched pictures"), (PERTURBED, "▲", "△", "moved pictures"))
    there = {str(row.get("source")) for row in mapped.get("rows") or ()}
    legend = " &nbsp; ".join(
        f'<span style="color:{SHADES[source]}">{full}</span> abnormal, <span style="color:{SHADES[source]}">{hollow}'
        f"</span> other sentences on {words}"
        for source, full, hollow, words in kinds
        if source in there
    )
    left = number(mapped.get("left_out"))
    note = (
        f"{text(mapped.get('sentences'))} different sentences by {text(mapped.get('embedding'))}, laid out by t-SNE "
        f"(perplexity {text(mapped.get('perplexity'))}); trustworthiness {text(mapped.get('trustworthiness'))} of 1. "
        f"{f'{left:,.0f} more were left out. ' if left else ''}Neighbours are alike; distances between far groups say "
        "nothing. Larger points were written more often; point at one to read it."
    )
    return f"<div class=plane>{in_page(drawn)}</div><p class=small>{legend}</p><p class=small>{note}</p>"
