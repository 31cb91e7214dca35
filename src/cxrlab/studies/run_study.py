"""Whole experiments from one YAML file: `cxrlab study NAME|FILE`.

The file's first key, `study`, names a row of the table; the others are that row's settings. A key
`quick` holds settings that replace the others when the experiment is only to be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.config import is_config, parameter_hints, parse_group, raise_problems, read_yaml
from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.core.tables import Table

# Each row is a function (config, out) -> Path of the page; its config is a frozen dataclass.
STUDIES = Table(
    "study",
    {
        "ablations": "cxrlab.studies.ablations:run_ablations",
        "analysis1": "cxrlab.studies.analysis_text:run_analysis",
        "extraction": "cxrlab.studies.extraction_study:run_extraction_study",
        "preference": "cxrlab.studies.preference_study:run_preference_study",
    },
)
FOLDER = Path("configs") / "studies"
# Beside the package in a checkout; an installed package has no such folder, and a name then needs a file.
_CHECKOUT = Path(__file__).resolve().parents[3]
KIND, QUICK = "study", "quick"


@dataclass(frozen=True)
class Prepared:
    """A study that was read and checked.

    Args:
        kind: Row of `STUDIES`.
        config: Its settings.
        name: Of the file, for the run folder.
    """

    kind: str
    config: Any
    name: str

    def run(self, out: Path) -> Path:
        """Do it; returns the page."""
        page: Path = STUDIES.load(self.kind)(self.config, out)
        return page


def run_study(study: str, out: Path | None = None, quick: bool = False) -> Path:
    """Run a whole experiment and end with a page.

    A stopped study is continued part by part; a finished one with the same settings is shown again.

    Args:
        study: YAML file, or the name of one in configs/studies (ablations_phantom).
        out: Run folder; runs/NAME when left out.
        quick: Take the small sizes that the file gives under 'quick': to see that it works, not what comes of it.
    """
    # Where a launcher has started several processes each of them would draw, write and score the same folders.
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError(
            "a study runs in one process; start it without a launcher, or launch its stages one by one with "
            "'accelerate launch … -m cxrlab train' into the study's folders."
        )
    prepared = read_study(find_study(study), quick)
    return prepared.run(out if out is not None else Path("runs") / f"{prepared.name}{'_quick' if quick else ''}")


def find_study(study: str) -> Path:
    """The file that is meant: a path, or a name in configs/studies here or in the checkout of the program."""
    path = Path(study)
    if path.is_file():
        return path
    if path.suffix in (".yaml", ".yml") or os.sep in study:
        raise ConfigError(f"{study} is not a file; give the YAML file of a study.{_known(path.stem)}")
    for folder in (FOLDER, _CHECKOUT / FOLDER):
        if (found := folder / f"{study}.yaml").is_file():
            return found
    raise ConfigError(f"there is no study '{study}' in {FOLDER}.{_known(study)}")


def read_study(file: Path, quick: bool = False) -> Prepared:
    """The study of a file with its settings checked; everything wrong with them is told at once."""
    data, _ = read_yaml(file)
    kind = data.get(KIND)
    if kind is None and "quick" in data and isinstance(data["quick"], bool):
        raise ConfigError(f"{file} has no key 'study'; it belongs to 'cxrlab tour --config {file}'.")
    if not isinstance(kind, str):
        raise ConfigError(
            f"{file}: 'study' is {short_repr(kind)}; write 'study: NAME' with one of {', '.join(STUDIES.names())}."
        )
    function = STUDIES.load(kind)
    cls = next(hint for hint in parameter_hints(function).values() if is_config(hint))
    settings = {key: value for key, value in data.items() if key not in (KIND, QUICK)}
    small = data.get(QUICK)
    if small is not None and not isinstance(small, Mapping):
        raise ConfigError(f"{file}: 'quick' is {short_repr(small)}; it must be a group of settings of this study.")
    if quick:
        if small is None:
            raise ConfigError(f"{file} gives no small sizes under 'quick'; run it without --quick.")
        _refuse_absent(settings.get("variants"), small.get("variants"), file)
        settings = merged(settings, small)
    config, problems = parse_group(cls, settings, str(file))
    raise_problems(problems)
    return Prepared(kind, config, file.stem)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`; groups are merged key by key, and null takes a key out."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def _refuse_absent(variants: Any, left_out: Any, file: Path) -> None:
    """Refuse to leave out a variant that is not there."""
    if isinstance(variants, Mapping) and isinstance(left_out, Mapping):
        for name, value in left_out.items():
            if value is None and name not in variants:
                raise ConfigError(
                    f"{file}: 'quick' leaves out '{name}', which is no variant.{did_you_mean(name, variants)}"
                )


def _known(name: str) -> str:
    """The files that are there, with the nearest name first."""
    names = sorted({file.stem for folder in (FOLDER, _CHECKOUT / FOLDER) for file in folder.glob("*.yaml")})
    return f"{did_you_mean(name, names)} Studies there: {', '.join(names) or 'none'}."
