"""Sections of a page on a corpus in numbers: who is in it, what is known of the images, texts, pixels and repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, bar, section, table, text

Runs = Sequence[RunFolder]
Numbers = Mapping[str, Any]

_SPLITS = ("train", "val", "test", "none")
_SPLIT_HEADS = {"none": "no split"}
_FIVE = ("least", "25 %", "median", "75 %", "most")
_STATES = ("present", "uncertain", "absent", "unknown")


def data_card(runs: Runs) -> str:
    """All that the statistics of each run tell; empty where no run checked a corpus."""
    return "".join(_card(run) for run in runs if run.statistics)


def _card(run: RunFolder) -> str:
    numbers = run.statistics
    return "".join(
        (
            _defects(run.check),
            _people(numbers),
            _labels("Labels", numbers.get("labels") or {}, "CheXpert's observations"),
            _labels("Labels of the corpus's own", numbers.get("own_labels") or {}, "The corpus's own labels"),
            _texts(numbers),
            _images(numbers),
            _repeats(numbers),
            _notes(numbers),
        )
    )


def _defects(check: Numbers) -> str:
    """What is wrong with the corpus, by kind, with an example of each."""
    problems, stated = check.get("problems") or {}, check.get("stated") or {}
    if not problems and not stated:
        return ""
    examples = {row.get("kind"): row.get("message") for row in reversed(check.get("examples") or [])}
    rows = [[f"<span class=bad>{text(kind)}</span>", text(examples.get(kind)), text(n)] for kind, n in problems.items()]
    rows += [
        [text(kind), "no problem: stated on the card, or a corpus of labels", text(n)] for kind, n in stated.items()
    ]
    return section("Defects", table(["what is wrong", "for example", "how often"], rows, 1))


def _people(numbers: Numbers) -> str:
    parts = [
        _by_split(title, numbers.get(key) or {})
        for title, key in (
            ("images by view", "views"),
            ("what training takes by default", "usable"),
            ("studies by sex", "sexes"),
            ("studies by age", "ages"),
        )
    ]
    told = [
        f"{text(numbers[key])} studies {what}"
        for key, what in (("with_prior", "name an earlier one of the same patient"), ("with_boxes", "have boxes"))
        if numbers.get(key)
    ]
    return section("Views, sex and age", *parts, f"<p>{'; '.join(told)}.</p>" if told else "")


def _by_split(title: str, rows: Mapping[str, Mapping[str, int]]) -> str:
    """Counts by split, with a bar for the share of all."""
    if not rows:
        return ""
    total = sum(row.get("all", 0) for row in rows.values()) or 1
    splits = [name for name in _SPLITS if any(name in row for row in rows.values())]
    head = [text(title), "", "all", "share", *(_SPLIT_HEADS.get(name, name) for name in splits)]
    body = [
        [
            text(value),
            bar(row.get("all", 0) / total),
            text(row.get("all", 0)),
            _percent(row.get("all", 0) / total),
            *(text(row.get(name, 0)) for name in splits),
        ]
        for value, row in rows.items()
    ]
    return table(head, body, 2 + len(splits))


def _labels(title: str, rows: Mapping[str, Mapping[str, Mapping[str, int]]], what: str) -> str:
    """Each label with all four states, and how often it is present in each split."""
    if not rows:
        return ""
    splits = [name for name in _SPLITS if any(name in row for row in rows.values())]
    ordered = sorted(rows.items(), key=lambda row: -row[1].get("all", {}).get("present", 0))
    head = ["label", "", *_STATES, *(_SPLIT_HEADS.get(name, name) for name in splits)]
    body = []
    for name, row in ordered:
        everywhere = row.get("all", {})
        present = [text(row.get(split, {}).get("present", 0)) for split in splits]
        body.append([text(name), _stack(everywhere), *(text(everywhere.get(state, 0)) for state in _STATES), *present])
    note = (
        f"{what}, in studies. A label that is not there is unknown, not absent. Bars: present, uncertain, absent; "
        "columns by split: present."
    )
    return section(title, table(head, body, len(_STATES) + len(splits)), note=note)


def _stack(row: Mapping[str, int]) -> str:
    """One bar of present, uncertain and absent beside one another; what is left is unknown."""
    total = sum(row.values()) or 1
    pieces = "".join(
        f'<span class={state} style="width:{100 * row.get(state, 0) / total:.1f}%"></span>' for state in _STATES[:3]
    )
    return f'<span class="bar stack">{pieces}</span>'


def _texts(numbers: Numbers) -> str:
    rows = numbers.get("texts") or {}
    if not rows:
        return ""
    studies = sum((numbers.get("splits") or {}).values()) or 1
    longest = max(row.get("third") or 0 for row in rows.values()) * 1.6 or 1
    body = [
        [text(kind), _box(row, longest), text(row.get("n")), _percent((row.get("n") or 0) / studies), *_five(row)]
        for kind, row in rows.items()
    ]
    head = ["text", "words", "studies", "share", *_FIVE]
    masked = ", ".join(
        f"{text(mark)} in {text(count)} studies" for mark, count in (numbers.get("masked") or {}).items()
    )
    told = f"<p>Words taken out by the source: {masked}.</p>" if masked else ""
    with_text = f"{text(numbers.get('with_text', 0))} of {text(studies)} studies have a text of the source."
    return section("Texts", table(head, body, 7), told, note=f"{with_text} Lengths are in words.")


def _images(numbers: Numbers) -> str:
    images = numbers.get("images") or {}
    absent = numbers.get("absent_images") or 0
    if not images.get("read"):
        return section(
            "Pixels", f"<p>No image was read; {text(absent)} are listed by the source.</p>" if absent else ""
        )
    measured = [("width in pixels", "width"), ("height in pixels", "height"), ("mean grey", "mean_grey"),
                ("spread of grey", "spread_of_grey")]  # fmt: skip
    rows = [[name, _box(row, row.get("most") or 1), *_five(row)] for name, key in measured if (row := images.get(key))]
    suspects = [
        [text(name), bar(n / images["read"]), text(n)] for name, n in (images.get("suspects") or {}).items() if n
    ]
    if images.get("colour"):
        suspects.append(["in colour", bar(images["colour"] / images["read"]), text(images["colour"])])
    depth = ", ".join(f"{text(kind)} {text(count)}" for kind, count in (images.get("depth") or {}).items())
    lost = f" {text(absent)} more are listed by the source and not in its folder." if absent else ""
    return section(
        "Pixels",
        table(["", "", *_FIVE], rows, 5),
        table(["images that look odd", "", "images"], suspects, 1) if suspects else "<p>No image looks odd.</p>",
        note=f"{text(images['read'])} images were read ({depth}).{lost} Grey is 0 for black and 1 for white; spread is "
        "the standard deviation in an image.",
    )


def _repeats(numbers: Numbers) -> str:
    rows = numbers.get("repeats") or {}
    body = [
        [text(kind), *(text(row.get(key)) for key in ("groups", "members", "across_splits"))]
        for kind, row in rows.items()
    ]
    note = (
        "The same: equal words, or equal pixels however they are stored. Similar: different, yet most phrases or most "
        "of the picture agree; looked for with --duplicates. Normal reports repeat; an image in two splits spoils a test."
    )
    head = ["what comes more than once", "groups", "members", "groups across splits"]
    return section("Repeats", table(head, body, 3) if body else "", note=note)


def _notes(numbers: Numbers) -> str:
    parts = []
    for title, key in (("left out by the import", "dropped"), ("remarks of the import", "remarks")):
        if tally := numbers.get(key):
            parts.append(table([title, "studies"], [[text(what), text(n)] for what, n in tally.items()], 1))
    return section("Notes of the import", *parts)


def _five(row: Mapping[str, Any]) -> list[str]:
    return [_number(row.get(key)) for key in ("least", "first", "median", "third", "most")]


def _number(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return UNKNOWN
    return text(int(value)) if float(value).is_integer() else f"{value:.3f}"


def _box(row: Mapping[str, Any], longest: float) -> str:
    """The middle half as a bar and the median as a tick, on a scale from 0."""

    def at(value: float) -> float:
        return 100 * min(max(value / longest, 0.0), 1.0)

    low, middle, high = (at(row.get(key) or 0) for key in ("first", "median", "third"))
    return (
        f'<span class=scale><span style="left:{low:.1f}%;width:{high - low:.1f}%"></span>'
        f'<b style="left:{middle:.1f}%"></b></span>'
    )


def _percent(share: float) -> str:
    return "&lt; 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
