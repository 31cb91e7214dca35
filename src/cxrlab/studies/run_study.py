"""The command `cxrlab study`: a whole experiment from one YAML file.

The file's key `study` names a row of `STUDIES`; the other keys are that recipe's settings. The key `quick` holds
settings that replace the others with --quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.config import parse_group, raise_problems, read_yaml
from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.core.plan import Plan
from cxrlab.core.registry import Registry
from cxrlab.studies.engine import StudyRecipe, merged, run_recipe

# Each row is a `StudyRecipe`.
STUDIES = Registry(
    "study",
    {
        "ablations": "cxrlab.studies.ablations:Ablations",
        "analysis1": "cxrlab.studies.processed_vs_rule_text:TextAnalysis",
        "extraction": "cxrlab.studies.extraction_study:ExtractionStudy",
        "preference": "cxrlab.studies.preference_study:PreferenceStudy",
        "sequence": "cxrlab.studies.sequence:CommandSequence",
    },
)
# Here, and beside the package in a checkout; an installed package has no such folder, and a name then needs a file.
FOLDERS = (Path("configs/studies"), Path(__file__).resolve().parents[3] / "configs/studies")


@dataclass(frozen=True)
class StudyFile:
    """A study as its file gives it: name of the file, recipe and checked settings."""

    name: str
    recipe: type[StudyRecipe]
    config: Any


def run_study(
    study: str, out: Path | None = None, quick: bool = False, dry_run: bool = False
) -> Path | list[dict[str, str]]:
    """Run a whole experiment and end with a page; for the arguments see `cxrlab study --help`.

    Returns the page, or with `dry_run` every part with its state and every missing input.
    """
    recipe = _planned_recipe(study, out, quick)
    return recipe.status() if dry_run else run_recipe(recipe)


def plan_named_study(study: str, out: Path | None = None, quick: bool = False) -> Plan:
    """What a study would take; for the arguments see `run_study`."""
    from cxrlab.studies.study_plan import plan_study

    return plan_study(_planned_recipe(study, out, quick))


def _planned_recipe(study: str, out: Path | None, quick: bool) -> StudyRecipe:
    # With a launcher, several processes would write the same folders.
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError(
            "a study runs in one process; start it without a launcher, or launch its stages one by one with "
            "'accelerate launch … -m cxrlab train' into the study's folders."
        )
    file = read_study(find_study(study), quick)
    return file.recipe(file.config, out or Path("runs") / f"{file.name}{'_quick' if quick else ''}")


def find_study(study: str) -> Path:
    """The file of a study: a path, or a name in configs/studies here or in the program's checkout."""
    path = Path(study)
    if path.is_file():
        return path
    names = sorted({file.stem for folder in FOLDERS for file in folder.glob("*.yaml")})
    known = f"{did_you_mean(path.stem, names)} Known studies: {', '.join(names) or 'none'}."
    if path.suffix in (".yaml", ".yml") or os.sep in study:
        raise ConfigError(f"{study} is not a file; give the YAML file of a study.{known}")
    for folder in FOLDERS:
        for name in (study, study.replace("-", "_")):
            if (found := folder / f"{name}.yaml").is_file():
                return found
    raise ConfigError(f"there is no study '{study}' in {FOLDERS[0]}.{known}")


def read_study(file: Path, quick: bool = False) -> StudyFile:
    """The study of a file with its settings checked; one `ConfigError` lists all problems."""
    data, _ = read_yaml(file)
    kind, small = data.get("study"), data.get("quick")
    if kind is None and isinstance(small, bool):
        raise ConfigError(f"{file} has no key 'study'; it is a file for 'cxrlab tour --config {file}'.")
    if not isinstance(kind, str):
        raise ConfigError(
            f"{file}: 'study' is {short_repr(kind)}; write 'study: NAME' with one of {', '.join(STUDIES.names())}."
        )
    recipe = STUDIES.load(kind)
    settings = {key: value for key, value in data.items() if key not in ("study", "quick")}
    if small is not None and not isinstance(small, Mapping):
        raise ConfigError(f"{file}: 'quick' is {short_repr(small)}; it must be a group of settings of this study.")
    if quick:
        if small is None:
            raise ConfigError(f"{file} has no small sizes under 'quick'; run it without --quick.")
        variants, changed = settings.get("variants"), small.get("variants")
        if isinstance(variants, Mapping) and isinstance(changed, Mapping):
            for name, value in changed.items():
                if value is None and name not in variants:
                    raise ConfigError(
                        f"{file}: 'quick' removes '{name}', which is not a variant.{did_you_mean(name, variants)}"
                    )
        settings = merged(settings, small)
    config, problems = parse_group(recipe.config_class, settings, str(file))
    raise_problems(problems)
    return StudyFile(file.stem, recipe, config)
