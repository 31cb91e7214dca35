"""`--plan` of every command that may take long: its work, time, memory, disk and requests, printed in one form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cxrlab.cli.output import Result
from cxrlab.core.errors import ConfigError
from cxrlab.core.plan import Plan
from cxrlab.core.tables import DASH, Column, Table

if TYPE_CHECKING:
    from cxrlab.models.hf.operations import Gpus


def planned(plan: Plan) -> Result:
    """A plan as a table of its work, one of its sums, and what it leaves out."""
    rows = [
        (
            one.name, f"{one.count:,} {one.unit}{'' if one.count == 1 else 's'}", f"{one.done:,}" if one.done else "",
            _each(one.seconds_each), DASH if one.seconds is None else duration(one.seconds),
        )
        for one in plan.work
    ]  # fmt: skip
    names = ("work", "count", "done", "seconds each", "time left")
    shown = [name for place, name in enumerate(names) if name != "done" or any(row[2] for row in rows)]
    kept = [names.index(name) for name in shown]
    work = Table(tuple(map(Column, shown)), tuple(tuple(row[place] for place in kept) for row in rows))
    notes = [f"Not timed: {', '.join(plan.untimed)}."] if plan.untimed else []
    notes += [f"Left out: {one}" for one in plan.left_out]
    sums = Table((Column("the whole run"), Column(_basis(plan))), tuple(_sums(plan)))
    return Result([*([work] if rows else ["Nothing is left to do."]), sums, *notes], plan.to_json())


def folder(out: Path | None, other: str = "--plan") -> Path:
    """The run folder of a command that may do without one."""
    if out is None:
        raise ConfigError(f"--out is missing; name the run folder, or give {other} to write nothing.")
    return out


def named_gpus(hardware: str | None, *, plan: bool) -> Gpus | None:
    """The GPUs of --hardware, which needs --plan; None without the flag."""
    if hardware is None:
        return None
    if not plan:
        raise ConfigError(f"--hardware {hardware} is for estimates; give --plan with it.")
    from cxrlab.models.hf.operations import Gpus

    return Gpus.parse(hardware)


def duration(seconds: float) -> str:
    """A duration in the largest unit of which there are two."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 or not seconds else f"{seconds:.1f} seconds"


def _basis(plan: Plan) -> str:
    hardware = plan.hardware
    if hardware is None:
        return "estimated from sizes"
    cores = f"{hardware.cores} core{'' if hardware.cores == 1 else 's'}"
    return f"measured on {hardware.device}, {cores}"


def _each(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds:.3g}"


def _sums(plan: Plan) -> list[tuple[str, str]]:
    rows = [("time", duration(plan.seconds) + (", without what is not timed" if plan.untimed else ""))]
    if (hardware := plan.hardware) is not None:
        if hardware.memory_gb is not None:
            rows.append(("memory of this process", f"{hardware.memory_gb:.1f} GB"))
        if hardware.gpu_memory_gb is not None:
            rows.append(("memory on the GPU", f"{hardware.gpu_memory_gb:.1f} of {hardware.gpu_gb:.1f} GB"))
    if plan.estimated_gb is not None:
        rows.append(
            (
                "memory, as estimated by the check" if plan.hardware else "memory of each GPU",
                f"{plan.estimated_gb:.1f} GB",
            )
        )
    if plan.disk_gb is not None:
        size = f"{plan.disk_gb:.1f} GB" if plan.disk_gb >= 1 else f"{1000 * plan.disk_gb:.0f} MB"
        rows.append(("disk", size))
    if plan.requests:
        prompt, answer = (
            sum(value for one in plan.work if (value := getattr(one, name)) is not None)
            for name in ("prompt_tokens", "answer_tokens")
        )
        rows.append(("requests", f"{plan.requests:,}, not sent for the plan"))
        if prompt or answer:
            rows.append(("tokens", f"about {prompt:,} in prompts, at most {answer:,} in answers"))
        cost = "no price given" if plan.price is None else f"at most {plan.price:,.2f}"
        rows.append(("cost", cost))
    rows += [(name.replace("_", " "), _fact(value)) for name, value in plan.facts.items() if value is not None]
    return rows


def _fact(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
