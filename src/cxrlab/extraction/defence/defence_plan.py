"""Plan `cxrlab defend`: the extraction without a defence is timed, and counts once for each attack that is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cxrlab.core.plan import Plan, Work, count_lines
from cxrlab.core.runs import progress, state
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.generate import select_studies
from cxrlab.extraction.audit import VICTIM
from cxrlab.extraction.config import DefendConfig
from cxrlab.extraction.defence import defend
from cxrlab.extraction.defence.base import open_defence
from cxrlab.extraction.defence.defences import Preprocessing
from cxrlab.extraction.extraction_plan import plan_extraction

_VICTIM_REPORTS = "reports of the victim"  # shared by all attacks


def plan_defences(config: DefendConfig, out: Path | None = None) -> Plan:
    """Benign reports at the speed of the victim's, and one extraction per defence and kind of attacker.

    Args:
        out: A run folder that may hold a part of the run already.
    """
    begun = progress(out, config, seed=config.seed, operational=defend.OPERATIONAL)
    if begun == "finished":
        return Plan("defend", ())
    settings = replace(config.settings, benign=config.settings.benign or config.data)
    opened = {name: open_defence(name, settings, config.seed)[0] for name in config.defences}
    attackers = defend.attackers_of(opened, config)
    names = ["none", *(f"{name}-{kind}" for name, kinds in attackers.items() for kind in kinds)]
    folder = None if out is None else out / defend.ATTACKS
    finished = sum(folder is not None and state(folder / name) == "finished" for name in names)
    undefended = replace(
        defend.attack_config(config, defend.Plan(None, settings)),
        victim_run=None if folder is None else folder / VICTIM,
    )
    one = plan_extraction(undefended)
    benign = len(select_studies(load_corpus(config.data), config.split, config.n, config.seed))
    behind = sum(isinstance(defence, Preprocessing) for defence in opened.values())
    work: list[Work] = []
    for each in one.work:
        if each.name == _VICTIM_REPORTS:
            tokens = None if each.answer_tokens is None else each.answer_tokens // max(each.left, 1)
            count, done = benign * (1 + behind), count_lines(out, defend.BENIGN) if begun == "begun" else 0
            work.append(replace(each, name="benign reports", count=count, done=done,
                                answer_tokens=None if tokens is None else tokens * (count - done)))  # fmt: skip
            work.append(each)
        else:
            work.append(each.times(len(names) - finished, f"{len(names) - finished} attacks: "))
    notes = ("what adaptive attackers do beside an extraction, such as probes.", "the metrics of the benign reports.")
    return Plan("defend", tuple(work), facts={"attacks": len(names), "attacks_finished": finished},
                left_out=(*one.left_out, *notes))  # fmt: skip
