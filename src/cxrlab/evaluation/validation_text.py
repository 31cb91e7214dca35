"""What a validation came to, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cxrlab.core.headlines import one_kind
from cxrlab.evaluation.judges import answer_lines


def validation_text(found: Mapping[str, Any]) -> str:
    """What a validation came to, best metric first, for a terminal."""
    lines = _ranked(found) if found["benchmark"] == "radjudge" else _correlated(found)
    return "\n".join([*lines, *answer_lines(found.get("judges", {}))])


def _ranked(found: Mapping[str, Any]) -> Iterator[str]:
    metrics = found["metrics"]
    width = max(map(len, metrics), default=6)
    for name in sorted(filter(_whole, metrics), key=lambda name: -metrics[name]["passed"]):
        row = metrics[name]
        wrong = [case for case, right in row["cases"].items() if not right]
        failed = f"   wrong: {', '.join(wrong)}" if 0 < len(wrong) <= 10 else ""
        yield f"{name:<{width}}  {row['passed']:3d} of {row['of']}{failed}"
    yield f"values within {found['tie']:g} of each other count as equal"


def _correlated(found: Mapping[str, Any]) -> Iterator[str]:
    metrics = found["metrics"]
    width = max([6, *map(len, metrics)])
    extra = next((key for key in ("tau_significant", "preference_accuracy") if _any_has(metrics, key)), None)
    title = {"tau_significant": "tau, significant errors", "preference_accuracy": "right preferences"}.get(
        extra or "", ""
    )
    yield f"{'metric':<{width}}  {'tau':<24}  {title}"
    # A metric without an order (null) comes last.
    for name in sorted(filter(_whole, metrics), key=lambda name: -_order(metrics[name]["tau"])):
        row = metrics[name]
        last = "" if extra is None else _tau(row, "_significant") if extra == "tau_significant" else _number(row[extra])
        yield f"{name:<{width}}  {_tau(row, ''):<24}  {last:<24}  {_share(row, found)}".rstrip()
    ceiling = found.get("ceiling", {}).get("leave_one_out_tau")
    if ceiling:
        yield f"ceiling, one rater against the others: {', '.join(map(_number, ceiling))}"
    raters = found.get("raters", {})
    yield from _rater_lines({key: table for key, table in raters.items() if key != "judges"})
    yield from _judge_lines(raters.get("judges", {}), found.get("differences", {}))
    yield from _sensitivity_lines(found.get("sensitivity", {}))


def _judge_lines(judges: Mapping[str, Any], differences: Mapping[str, Any]) -> Iterator[str]:
    """Judges by language models side by side: in each rater's seat, and against the first of them."""
    if judges:
        yield (
            "judges in each rater's seat, one rater left out: mean absolute difference to the others beside the "
            "raters' own; judge minus rater, with a paired t-test, for each (below 0: the judge is closer)"
        )
    width = max((len(table["judge"]) for found in judges.values() for _, table in _tables(found)), default=0)
    for found in judges.values():
        for _, table in _tables(found):
            rows, mean = table["by_rater"], table["mean"]
            tests = ", ".join(f"{_who(rater)} {_gap(row)} ({_p(row['p'])})" for rater, row in rows.items())
            least = min(row["n"] for row in rows.values())
            both = f"{_number(mean['judge_difference'])} beside {_number(mean['rater_difference'])}"
            yield f"  {table['judge']:<{width}}  {both}  n {least}  {tests}"
    for judge, row in differences.items():
        for which in (key for key in ("total", "significant") if key in row):
            gap = row[which]
            ends = f"[{_number(gap['low'])}, {_number(gap['high'])}]"
            yield f"{judge} above {row['above']}, tau of {which} errors: {_number(gap['difference'])} {ends}"


def _tables(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What was counted → the table of the raters; a benchmark with one scale has one table."""
    yield from [("", found)] if "by_rater" in found else found.items()


def _rater_lines(raters: Mapping[str, Any]) -> Iterator[str]:
    for which, table in _tables(raters):
        for rater, row in table["by_rater"].items():
            who = f"{which} errors, {_who(rater)}" if which else _who(rater)
            yield (
                f"{who}: {_number(row['rater_difference'])} from the other raters on average, {table['judge']} "
                f"{_number(row['judge_difference'])} ({_p(row['p'])})"
            )


def _sensitivity_lines(table: Mapping[str, Any]) -> Iterator[str]:
    rows = table.get("rows", {})
    if not rows:
        return
    yield "sensitivity: does each metric fall where something is made wrong, and stay where nothing is?"
    for name in filter(_whole, next(iter(rows.values()))["metrics"]):
        wrong = [edit for edit, row in rows.items() if not row["metrics"][name]["right"]]
        yield f"  {name}: {'right' if not wrong else 'wrong at ' + ', '.join(wrong)}"


def _whole(name: str) -> bool:
    """False for one of the twelve counts, which measures one kind of error alone and fills a terminal."""
    return not one_kind(name)


def _order(tau: float | None) -> float:
    return -2.0 if tau is None else tau


def _any_has(metrics: Mapping[str, Mapping[str, Any]], key: str) -> bool:
    return any(key in row for row in metrics.values())


def _tau(row: Mapping[str, Any], suffix: str) -> str:
    return f"{_number(row[f'tau{suffix}'])} [{_number(row[f'low{suffix}'])}, {_number(row[f'high{suffix}'])}]"


def _share(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """How many pairs a metric has a value for, where it has not one for each: those left out may be the hard ones."""
    known, pairs = row.get("n"), found.get("n")
    return f"n {known:,} of {pairs:,}" if known is not None and pairs is not None and known < pairs else ""


def _who(rater: str) -> str:
    return f"rater {rater}" if rater.isdigit() else rater


def _gap(row: Mapping[str, Any]) -> str:
    judge, rater = row["judge_difference"], row["rater_difference"]
    return "–" if judge is None or rater is None else f"{judge - rater:+.3f}"


def _p(value: float | None) -> str:
    return "p undefined" if value is None else "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
