"""Score two systems on a handful of reports, see what is wrong with each, compare them, and write a page.

python examples/score_reports.py runs/two_systems
"""

from __future__ import annotations

import sys
from pathlib import Path

import cxrlab
from cxrlab.core.files import write_json
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.score import run_score
from cxrlab.render.page import write_page

REFERENCES = {
    "a": "Small left pleural effusion. No pneumothorax.",
    "b": "Moderate cardiomegaly, unchanged. The lungs are clear.",
    "c": "Large right pneumothorax. The trachea is midline.",
    "d": "No acute cardiopulmonary abnormality.",
}
SYSTEMS = {
    "careful": {
        "a": "There is a small pleural effusion on the left. No pneumothorax is seen.",
        "b": "The heart is moderately enlarged, as before. Clear lungs.",
        "c": "A large pneumothorax is present on the right.",
        "d": "No acute disease.",
    },
    "careless": {
        "a": "Small right pleural effusion. No pneumothorax.",
        "b": "Mild cardiomegaly, unchanged. The lungs are clear.",
        "c": "The trachea is midline. No pneumothorax.",
        "d": "No acute cardiopulmonary abnormality.",
    },
}


def main(folder: Path) -> None:
    """Score, compare and show in `folder`."""
    write_json(folder / "references.json", REFERENCES)
    for name, reports in SYSTEMS.items():
        sheet = cxrlab.score(REFERENCES, reports, metrics=["rougeL:google", "clinical:rules"])
        for metric, score in sheet.items():
            print(f"{name:<9} {metric:<15} {score.value:.3f}, best floor {sheet.best_floor(metric)}")
        for study in sheet.studies:
            for error in study.errors:
                print(f"  {study.pair.id}: {error.kind.value}, {error.observation}: {error.detail}")
        write_json(folder / f"{name}.json", reports)
        run_score(ScoreConfig(folder / "references.json", folder / f"{name}.json"), folder / name)
    runs = [folder / name for name in SYSTEMS]
    compare(runs, out=folder / "comparison")
    print(write_page([*runs, folder / "comparison"], folder / "page.html", title="Two systems"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/two_systems"))
