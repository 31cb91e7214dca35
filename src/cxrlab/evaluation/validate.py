"""Metrics measured: against radiologists, ranking cases, or reports whose errors are known.

validation.json   the benchmark's figures, by metric
judged.jsonl      what judges by language models said of each pair, where there are any

With judges also answers.sqlite and requests.jsonl, see `models.asked_once`: a run that was stopped asks nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cxrlab.core.asking import free_asking
from cxrlab.core.egress import Shown
from cxrlab.core.files import read_json
from cxrlab.core.json_form import dumps, plain
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import Table
from cxrlab.evaluation.chosen_metrics import chosen_metrics
from cxrlab.evaluation.judges import OpenJudge, answers_told, by_pair, evidence_of, open_judges, parted
from cxrlab.evaluation.validate_config import ValidateConfig
from cxrlab.metrics.pairs import Batch

VALIDATION, JUDGED = "validation.json", "judged.jsonl"
# Each row makes a `Benchmark` from the settings.
BENCHMARKS = Table(
    "benchmark",
    {
        "radpref": "cxrlab.evaluation.radpref:RadPrefBenchmark",
        "radjudge": "cxrlab.evaluation.radjudge:RadJudgeBenchmark",
        "rexval": "cxrlab.evaluation.rexval:RexValBenchmark",
        "phantom": "cxrlab.evaluation.validate:PhantomBenchmark",
    },
)
SYNTHETIC = ("phantom",)  # the others are reports of patients


class Benchmark(Protocol):
    """Pairs whose merit is known; made from the settings, it has read its files."""

    @property
    def batch(self) -> Batch:
        """The pairs."""
        ...

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures of `validation.json`.

        Args:
            names: Names or groups of metrics; the default ones when None.
            judges: Judges by language models, open.
        """
        ...


def run_validation(config: ValidateConfig, out: Path | None = None) -> Mapping[str, Any]:
    """Run a benchmark and write RUN/validation.json; returns its content.

    A finished run with the same settings is left as it is.
    """
    if out is not None and finished(out, config, seed=config.seed, free=free_asking()):
        stored: Mapping[str, Any] = read_json(out / VALIDATION)
        return stored
    names, judges = parted(config.metrics or None)
    chosen_metrics(names, beside_judges=bool(judges))
    benchmark: Benchmark = BENCHMARKS.load(config.benchmark)(config)
    # Opened late: a wrong name, or a benchmark that cannot be read, leaves no folder behind. But before judges are
    # asked: their answers are kept in it as they come.
    with open_judges(judges, config.asking, [_shown(config)], out, config.judging) as opened:
        if out is None:
            return _measured(benchmark, names, opened)[0]
        with Run.open(out, config, seed=config.seed, free=free_asking()) as run:
            found, judged = _measured(benchmark, names, opened)
            if opened:
                run.write(JUDGED, judged)
            run.write(VALIDATION, found)
    return found


def _measured(
    benchmark: Benchmark, names: Sequence[str] | None, judges: Sequence[OpenJudge]
) -> tuple[Mapping[str, Any], str]:
    """The content of both files."""
    found = benchmark.measured(names, judges)
    evidence = evidence_of(judges, benchmark.batch)
    lines = [
        dumps({"id": pair.id, "judged": by_pair(evidence, place)}) for place, pair in enumerate(benchmark.batch.pairs)
    ]
    told: Mapping[str, Any] = plain({**found, "judges": answers_told(evidence)})
    return told, "".join(f"{line}\n" for line in lines)


def _shown(config: ValidateConfig) -> Shown:
    return Shown(str(config.root or config.benchmark), config.benchmark in SYNTHETIC)


class PhantomBenchmark:
    """Every metric against reports with drawn errors, and the table of what must move it and what must not.

    Judges are not asked for that table: it would take several times as many questions as the cases.

    Args:
        config: Settings; the cases are drawn at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        from cxrlab.evaluation.error_benchmark import draw_cases

        self._config, self._cases = config, draw_cases(config.seed, config.n)
        self.batch = Batch([case.pair for case in self._cases])

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures; see `Benchmark`."""
        from cxrlab.evaluation.error_benchmark import error_benchmark
        from cxrlab.evaluation.sensitivity import Sensitivity, sensitivity
        from cxrlab.metrics.families import families, metric_names

        seed, trials = self._config.seed, self._config.trials
        chosen, wanted = families(names), metric_names(names)
        everyone = [*chosen, *(judge.family for judge in judges)]
        metrics = (*wanted, *(name for judge in judges for name in judge.metrics))
        found = error_benchmark(self._cases, everyone, seed=seed, trials=trials, names=metrics).to_json()
        looked = max(self._config.n // 5, 1)
        moved = sensitivity(chosen, seed=seed, n=looked, names=wanted) if chosen else Sensitivity({})
        return {**found, "sensitivity": moved.to_json()}
