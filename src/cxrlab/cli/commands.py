"""The command table: what a user may type, and where the function behind it lives.

Listing it imports nothing. A row's flags come from the signature of its function; the module is
imported when the command is run or asked for its help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Command:
    """One row.

    Args:
        help: One line for the list of commands.
        target: `"module:function"`.
        example: A command line that works.
        positional: Parameters of the function that are given without a flag, in order.
    """

    help: str
    target: str
    example: str
    positional: tuple[str, ...] = ()


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "tour": Command(
            "the whole chain on phantoms; ends with a page",
            "cxrlab.studies.tour:run_tour",
            "cxrlab tour --quick --out runs/tour",
        ),
        "data ls": Command(
            "corpora that can be made, and those in a folder",
            "cxrlab.cli.data:list_corpora",
            "cxrlab data ls corpora",
            ("folder",),
        ),
        "data make phantom": Command(
            "synthetic chest films with reports whose truth is known",
            "cxrlab.cli.data:make_phantom",
            "cxrlab data make phantom --n 1000 --size 224 --seed 7 --out corpora/phantom",
        ),
        "data make scenes": Command(
            "captioned pictures without any chest",
            "cxrlab.cli.data:make_scenes",
            "cxrlab data make scenes --n 1000 --size 128 --seed 7 --out corpora/scenes",
        ),
        "data import": Command(
            "a downloaded data set in its true format into a corpus",
            "cxrlab.cli.data:import_data",
            "cxrlab data import nih-cxr14 --root downloads/nih --out corpora/nih",
            ("name",),
        ),
        "data show": Command(
            "a contact sheet with what is known under each film",
            "cxrlab.cli.data:show",
            "cxrlab data show corpora/phantom --n 40 --out sheet.png",
            ("corpus",),
        ),
        "data check": Command(
            "look for every defect of a corpus; exit 1 when there is one",
            "cxrlab.cli.data:check",
            "cxrlab data check corpora/phantom",
            ("corpus",),
        ),
        "models ls": Command(
            "how to name a model, and the built-in ones",
            "cxrlab.models.names:list_models",
            "cxrlab models ls",
        ),
        "generate": Command(
            "write a report for every study of a split",
            "cxrlab.cli.evaluation:generate",
            "cxrlab generate --model stub:normal --data corpora/phantom --split test --out runs/normal",
        ),
        "read": Command(
            "findings of a report with the words that say them",
            "cxrlab.cli.reading:read",
            'cxrlab read "Small left effusion, no pneumothorax."',
            ("text",),
        ),
        "score": Command(
            "predictions against references, with intervals and floors",
            "cxrlab.cli.scoring:score",
            "cxrlab score --references corpora/phantom --predictions runs/normal --out runs/normal_scored",
        ),
        "compare": Command(
            "scored runs, paired study by study; exit 1 when a gate fails",
            "cxrlab.cli.scoring:compare",
            "cxrlab compare runs/normal_scored runs/retrieval_scored --noninferior findings.f1=0.02",
            ("runs",),
        ),
        "metrics ls": Command(
            "every metric with direction, range and convention",
            "cxrlab.cli.scoring:list_metrics",
            "cxrlab metrics ls",
        ),
        "metrics validate": Command(
            "the metrics against radiologists or known errors",
            "cxrlab.cli.scoring:validate",
            "cxrlab metrics validate --benchmark phantom --n 500 --out runs/validation",
        ),
        "page": Command(
            "one HTML file from run folders",
            "cxrlab.render.page:write_page",
            "cxrlab page runs/normal --out page.html",
            ("runs",),
        ),
        "doctor": Command(
            "what is installed, what is missing, how to get it",
            "cxrlab.cli.doctor:doctor",
            "cxrlab doctor",
        ),
    }
)
