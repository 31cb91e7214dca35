"""Draw the figures of docs/images from audits over several seeds.

    python experiments/robustness_figures.py --study phantom=RUN [--study iu_xray=RUN2] --out docs/images

Each RUN is the folder of a study that audited its models, with robustness_seeds.json; the name before it is that of
the files, and the folder's own where it is left out. robustness_NAME_curves.svg has answers over the radius, or, where
no closed questions were asked, flips, confidence and errors of the reports; robustness_NAME_drops.svg, where they were
asked, the difference of drops of every variant; robustness_NAME_doses.svg the change of the drop over the drift, where
the study measured it. A second.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.files import read_json, write_text
from cxrlab.render.drawing import Drawing
from cxrlab.render.page import svg_file
from cxrlab.render.robustness_seeds import answer_curves, dose_curve, drops_forest, has_answers

FOUND = "robustness_seeds.json"


def main() -> None:
    """Write the figures of every study, and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", action="append", default=[], metavar="[NAME=]RUN", help="folder of a study")
    parser.add_argument("--out", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--rehearse", action="store_true", help="draw made-up audits, to check that it runs")
    given = parser.parse_args()
    if not given.study and not given.rehearse:
        parser.error("give --study, the folder of a study that audited its models")
    try:
        studies = {"rehearsal": made_up()} if given.rehearse else dict(map(read_study, given.study))
        for name, found in studies.items():
            for file, drawn in figures(found).items():
                print(write_text(given.out / f"robustness_{name}_{file}.svg", svg_file(drawn) + "\n"))
    except CxrlabError as error:
        raise SystemExit(str(error)) from None


def read_study(argument: str) -> tuple[str, Mapping[str, Any]]:
    """Name and audits of `NAME=RUN` or `RUN`."""
    name, given, folder = argument.partition("=") if not Path(argument).is_dir() else ("", "", argument)
    run = Path(folder if given or not name else name)
    if not (run / FOUND).is_file():
        raise DataError(f"{run} has no {FOUND}; name the folder of a study of alignment that audited its models.")
    return name if given else run.resolve().name, read_json(run / FOUND)


def figures(found: Mapping[str, Any]) -> dict[str, Drawing]:
    """Figures of a study by the suffix of their file name."""
    drops = drops_forest(found) if has_answers(found) else None
    drawn = {"curves": answer_curves(found), "drops": drops, "doses": dose_curve(found)}
    made = {name: drawing for name, drawing in drawn.items() if drawing is not None}
    if "curves" not in made or (has_answers(found) and "drops" not in made):
        raise DataError("the study has no figures under attack to draw; repeat its audits.")
    return made


def made_up() -> dict[str, Any]:
    """Audits of one variant in two seeds, at two radii."""

    def over(first: float, second: float) -> dict[str, Any]:
        return {"values": [first, second], "mean": (first + second) / 2, "low": first, "high": second, "seeds": 2}

    def both(value: float) -> dict[str, Any]:
        alone = [{"seed": seed, "value": 0.01 * seed, "low": -0.02, "high": 0.04, "p_holm": 1.0} for seed in (1, 2)]
        drop = {**over(0.01, 0.02), "by_seed": alone, "clear": 0, "same_way": True}
        return {"start": over(value, value + 0.02), "aligned": over(value + 0.01, value + 0.03), "drop": drop}

    names = ("findings.f1", "closed_questions.accuracy", "closed_questions.confidence")
    attacks = {"pgd@1/255": 0.6, "pgd@2/255": 0.4, "noise@1/255": 0.9, "noise@2/255": 0.9}
    conditions = {name: {metric: both(value) for metric in names} for name, value in attacks.items()}
    variant = {"clean": {metric: both(0.9) for metric in names}, "conditions": conditions}
    return {"seeds": [1, 2], "variants": {"dpo": variant}}


if __name__ == "__main__":
    main()
