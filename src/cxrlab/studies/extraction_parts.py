"""Making one part of a study of extraction, and the defences together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.files import read_json
from cxrlab.core.runs import Run, finished
from cxrlab.studies.extraction_plan import DEFEND, DETECT, EXTRACT, MODEL, VICTIM, ExtractionPlan
from cxrlab.studies.parts import Part


def make(part: Part, planned: ExtractionPlan, out: Path) -> None:
    """Make a part; one that was stopped is continued, one that is finished with these settings is left as it is.

    Args:
        part: Which.
        planned: All of them.
        out: Folder of the study.
    """
    folder = out / part.folder
    if part.kind == MODEL:
        from cxrlab.training.report_training import finetune

        finetune(part.config, folder)
    elif part.kind == VICTIM:
        from cxrlab.extraction.audit import write_victim

        write_victim(part.config, folder)
    elif part.kind == EXTRACT:
        from cxrlab.extraction.audit import extract

        extract(part.config, folder)
    elif part.kind == DETECT:
        from cxrlab.extraction.detection.detect import detect

        detect(part.config, folder)
    else:
        assert part.kind == DEFEND
        _defend(part, planned, out)


def _defend(part: Part, planned: ExtractionPlan, out: Path) -> None:
    """One defence; the attack without it is the variant's own, which stands among the attacks already."""
    from cxrlab.extraction.defence.defend import FOLDER, Plan, audit_attack, defend

    undefended = next(folder for folder in reversed(part.needs) if planned.part(folder).kind == EXTRACT)
    audited = audit_attack(part.config)

    def attack(wanted: Plan, folder: Path) -> Mapping[str, Any]:
        if wanted.defence is None:
            return {**read_json(out / undefended / "extraction.json"), FOLDER: out / undefended}
        return audited(wanted, folder)

    defend(part.config, out / part.folder, attack)


def together(runs: Sequence[Path], out: Path) -> None:
    """Defences that were measured one by one as one table with one recommendation, as `defend` writes it.

    Args:
        runs: Their run folders, each with one defence against the same attack; nothing is written for none.
        out: Run folder of the table.
    """
    from cxrlab.extraction.defence.defend import DEFENCE
    from cxrlab.extraction.defence.security_summary import security_summary

    told = {"defences": [run.name for run in runs]}
    if not runs or finished(out, told):
        return
    found = [read_json(run / DEFENCE) for run in runs]
    result: dict[str, Any] = {key: value for key, value in found[0].items() if key != "summary"}
    result["defences"] = {name: row for one in found for name, row in one["defences"].items()}
    with Run.open(out, told) as run:
        run.write(DEFENCE, {**result, "summary": security_summary(result)})
