"""Can a language model serve as judge, oracle and structurer? The share of its answers that can be read, by role.

    python experiments/language_model_roles.py --model 'http://127.0.0.1:8000/v1#NAME' --out FOLDER [--n 12]
        [--roles judge,pairwise,oracle,structurer]

Judges and structurer get phantom reports drawn from the seed, the oracle its built-in questions; nothing of a patient is
sent. Prints, for each role, how many answers were read whole, in part or not at all, with tokens and seconds per
request. A stopped run continues and repeats no request.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.egress import Connection, EgressData
from cxrlab.core.files import make_folder, write_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.llm_requests import REQUESTS, LLMConfig
from cxrlab.data.config import PhantomConfig, StructureConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.structuring.run import structure_corpus
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.load_model import open_text_model
from cxrlab.evaluation.validate_metrics import BENCHMARKS, run_validation
from cxrlab.extraction.config import OraclePrompts
from cxrlab.extraction.llm_oracle import query_llm_oracle
from cxrlab.metrics.judging.judges import PairwiseModel

SYNTHETIC = [EgressData("phantom reports", synthetic=True)]
Outcome = Mapping[str, Any]  # status → answers, and what else there is to know


def ask_judges(model: str, llm: LLMConfig, n: int, folder: Path) -> Outcome:
    """Error counts of two judges for phantom reports with planted errors."""
    config = ValidateConfig(
        benchmark="phantom", n=n, metrics=("errors.total", f"green:{model}", f"chexprompt:{model}"), trials=100, llm=llm
    )
    found = run_validation(config, folder)
    taus = {name: found["metrics"][name]["tau"] for name in found["metrics"] if name in config.metrics}
    return {"answers": found["judges"], "tau": taus}


def ask_pairwise(model: str, llm: LLMConfig, n: int, folder: Path) -> Outcome:
    """The report with planted errors or that of another patient: which is nearer to the reference?"""
    pairs = BENCHMARKS.load("phantom")(ValidateConfig(benchmark="phantom", n=n)).batch.pairs
    others = [*pairs[1:], *pairs[:1]]
    items = [(one.reference, one.candidate, other.reference) for one, other in zip(pairs, others, strict=True)]
    with open_text_model(model, llm, SYNTHETIC, folder) as opened:
        judge = PairwiseModel(opened)
        judge.compare(items)
    return {"answers": dict(judge.counts)}


def ask_oracle(model: str, llm: LLMConfig, n: int, folder: Path) -> Outcome:
    """Descriptions of chest images; n per question."""
    _, summary = query_llm_oracle(model, llm, OraclePrompts(count=n), 0, folder)
    return {name: summary[name] for name in ("answers", "kept", "dropped")}


def ask_structurer(model: str, llm: LLMConfig, n: int, folder: Path) -> Outcome:
    """Clean sections of phantom reports; every doubted answer is refused and requested again once."""
    source = make_phantom(PhantomConfig(n=2 * n, size=32, masks=False), folder / "phantoms")
    config = StructureConfig(model=model, split="train", limit=n, retries=1, max_refusals=1.0, llm=llm)
    with open_text_model(model, llm, SYNTHETIC, folder / "structured") as opened:
        done = structure_corpus(source, config, folder / "structured", opened)
    problems = Counter(
        str(problem)[:60]
        for _, record in read_jsonl(folder / "structured" / "structuring.jsonl")
        for attempt in record.get("refused") or []
        for problem in attempt
    )
    return {"answers": dict(done.card.remarks or {}), "problems": dict(problems.most_common(12))}


ROLES: Mapping[str, Callable[[str, LLMConfig, int, Path], Outcome]] = {
    "judge": ask_judges,
    "pairwise": ask_pairwise,
    "oracle": ask_oracle,
    "structurer": ask_structurer,
}


def requests_of(folder: Path) -> tuple[int, float, float]:
    """Number of paid requests below a folder, and their mean prompt and answer tokens."""
    rows = [row for file in sorted(folder.rglob(REQUESTS)) for _, row in read_jsonl(file) if row.get("paid")]
    mean = [sum(float(row.get(key) or 0) for row in rows) / max(len(rows), 1) for key in ("prompt_tokens", "tokens")]
    return len(rows), mean[0], mean[1]


def main() -> None:
    """Ask, count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--roles", default=",".join(ROLES))
    options = parser.parse_args()
    llm = LLMConfig(connection=Connection(timeout_s=900.0, concurrency=1))
    result: dict[str, Any] = {"model": options.model, "n": options.n}
    for role in options.roles.split(","):
        folder = make_folder(options.out / role)
        before, started = requests_of(folder)[0], time.monotonic()
        outcome = ROLES[role](options.model, llm, options.n, folder)
        seconds = time.monotonic() - started
        number, prompt, answer = requests_of(folder)
        per_request = seconds / (number - before) if number > before else None
        result[role] = {**outcome, "requests": number, "prompt_tokens": prompt, "tokens": answer, "s": per_request}
        print(role, result[role], flush=True)
    write_json(options.out / "roles.json", result)


if __name__ == "__main__":
    main()
