"""The attacks by name; each row is a class that `AttackSettings` makes."""

from __future__ import annotations

from cxrlab.core.tables import Table

ATTACKS = Table(
    "attack",
    {
        "fgsm": "cxrlab.attacks.gradient:Fgsm",
        "pgd": "cxrlab.attacks.gradient:Pgd",
        "mi-fgsm": "cxrlab.attacks.gradient:MiFgsm",
        "apgd": "cxrlab.attacks.apgd:Apgd",
        "ensemble": "cxrlab.attacks.ensemble:Ensemble",
        "square": "cxrlab.attacks.square:Square",
        "square-report": "cxrlab.attacks.square:SquareByReport",
        "random": "cxrlab.attacks.random_search:RandomSearch",
        "random-report": "cxrlab.attacks.random_search:RandomSearchByReport",
        "universal": "cxrlab.attacks.universal:Universal",
        "noise": "cxrlab.attacks.noise:Noise",
    },
)
