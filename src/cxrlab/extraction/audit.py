"""`cxrlab extract`: copy a victim by queries, train a surrogate on its answers, and measure the copy.

    ledger.sqlite       every query with its answer, cost and round; the authorisation
    pictures/           every image that was sent, by its sha256
    rounds/             plans and surrogates of the attack, see `attack_rounds`
    victim/             the victim's reports on the corpus
    copies/N/           the surrogate of the first N queries, trained from its start, with its reports and scores
    oracle.json         answers of an oracle that is a language model; oracle/ has every request
    map.json            sentences of the victim's answers on a plane
    examples.json       images before and after they were moved, with the victim's reports on both
    extraction.json     the result

An interrupted audit resumes with the query at which it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.egress import connection_operational_fields
from cxrlab.core.environment import require
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.llm_requests import llm_operational_fields
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.runs import Run, finished, state
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.evaluation.load_model import open_model
from cxrlab.extraction import preflight
from cxrlab.extraction.adaptive_attackers import probe_gate
from cxrlab.extraction.attack_rounds import (
    UNREADABLE,
    Attack,
    EncoderGuide,
    run_attack,
    training_queries,
    transcript_settings,
    was_aligned,
)
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.fidelity import measure_fidelity, scored
from cxrlab.extraction.llm_oracle import ORACLE, check_asked, query_llm_oracle
from cxrlab.extraction.query_ledger import LEDGER, BudgetExceeded, Ledger
from cxrlab.extraction.query_pools import open_pool
from cxrlab.extraction.records import AuditScope, Query
from cxrlab.extraction.surrogate import CHECKPOINT, EmptyTranscript, SurrogateTrainer, write_transcript
from cxrlab.extraction.transcript_analysis import MappedReport, diversity_by_round, examples, report_map
from cxrlab.extraction.victim_client import AccountsBlocked, VictimClient
from cxrlab.models.decoding import Decoding, decodes_here
from cxrlab.models.model_registry import load_encoder

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import ImageToText
    from cxrlab.extraction.query_pools import Pool

RESULT, MAP, EXAMPLES, COPIES, VICTIM = "extraction.json", "map.json", "examples.json", "copies", "victim"
MEASURED, WRITTEN = "measured", "written"
# Of the last copy, as they stand in extraction.json.
_OF_COPY = ("n", "patients", "victim", "surrogate", "fidelity", "ratio", "difference", "observations", "left_out",
            "predictions", "untouched")  # fmt: skip
OPERATIONAL = (
    "workers",
    "i_am_authorised",
    "fitting.track",
    *llm_operational_fields("oracle_llm"),
    *connection_operational_fields("loading.connection"),
)


def extract(config: ExtractConfig, out: Path) -> dict[str, Any]:
    """Copy a victim by queries and measure the copy; returns the content of extraction.json.

    An interrupted audit is resumed in `out`; a finished one with the same settings is left as it is.
    """
    require("models")
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return dict(read_json(out / RESULT))
    opened = open_audit(config, out)
    pool, victim, permission, guide, learner = (
        opened.pool, opened.victim, opened.permission, opened.guide, opened.learner,
    )  # fmt: skip
    guide_name = config.alignment.guide if guide else None
    connected = victim.capabilities.black_box
    unused = preflight.unused_settings(config, chooses_words=decodes_here(victim), connected=connected)
    shared = preflight.shared_weights(config.victim, config.surrogate, guide_name)
    rate = learner.learning_rate
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        threat = preflight.threat_model(config.victim, config.budget, config.price, permission)
        threat = f"{threat} {preflight.shared_weights_sentence(shared)}".strip()
        run.write(preflight.THREAT, {"victim": config.victim, "threat": threat, "authorised": permission.authorised})
        descriptions, consulted = None, None
        if config.method == "ada-steal" and config.oracle_is_a_model:
            asked = config.oracle_run or out
            descriptions, consulted = query_llm_oracle(
                config.oracle, config.oracle_llm, config.consulting, config.seed, asked
            )
            if asked != out:
                run.write(ORACLE, read_json(asked / ORACLE))
        attack = partial(
            Attack, pool=pool, learner=learner, config=config, folder=out, guide=guide, descriptions=descriptions
        )
        victim_run = config.victim_run or out / VICTIM
        if connected:  # before the attack: a victim that blocks the attacker's accounts would answer nothing afterwards
            _generate(config, config.victim, victim_run, config.victim_decoding)
        queries, spent = _query_victim(config, victim, permission, attack, out)
        del victim
        _generate(config, config.victim, victim_run, config.victim_decoding)
        budgets = [*sorted({budget for budget in config.at if budget < len(queries)}), len(queries)]
        if config.method == "none":
            budgets = [0]
        copies = {
            budget: _train_and_measure(config, learner, queries[:budget], budget, victim_run, out) for budget in budgets
        }
        found = {
            "threat": threat,
            "authorised": permission.authorised,
            "method": config.method,
            "budget": config.budget,
            **spent,
            **{key: copies[budgets[-1]][key] for key in _OF_COPY},
            "curve": {str(budget): copy.get("surrogate", {}) for budget, copy in copies.items()},
            "fidelity_curve": {str(budget): copy.get("fidelity", {}) for budget, copy in copies.items()},
            "transcript": diversity_by_round(queries, config.seed),
            "unreadable": read_json(out / UNREADABLE) if (out / UNREADABLE).is_file() else {},
            "options": {**_options(config), "learning_rate": rate, "shared_with_victim": shared},
            "oracle": consulted,
            "unused_settings": unused,
        }
        if config.map_sentences and queries:
            reports = [
                MappedReport(query.report, query.round, "perturbed" if was_aligned(query, config) else "clean")
                for query in queries
            ]
            run.write(MAP, plain(report_map(reports, most=config.map_sentences, seed=config.seed)))
        run.write(EXAMPLES, plain(examples(run.folder, queries)))
        run.write(RESULT, plain(found))
    return dict(plain(found))


@dataclass(frozen=True, eq=False)
class Opened:
    """What an audit works with, before the first query."""

    pool: Pool
    victim: ImageToText
    permission: preflight.Permission
    guide: EncoderGuide | None
    learner: SurrogateTrainer


def open_audit(config: ExtractConfig, out: Path | None) -> Opened:
    """Open pool and models; everything that can be refused is refused before the first query."""
    from cxrlab.training.trackers import check_installed

    check_installed(config.fitting.track)
    authorised = config.i_am_authorised
    if out is not None:
        authorised = preflight.recorded_authorisation(out, config.victim, authorised)
    preflight.check_address(config.victim, authorised)
    check_asked(config)
    measured = preflight.check_measurable(config)
    pool = open_pool(config.pool, size=config.size, seed=config.seed, colour=config.colour == "rgb")
    preflight.check_pool(config, pool, measured)
    victim = open_model(config.victim, config.loading, preflight.check_data_egress(config, pool, measured))
    permission = preflight.check_permission(config.victim, victim.capabilities, authorised)
    guide_name = config.alignment.guide if config.method == "ada-steal" else None
    guide = EncoderGuide(load_encoder(guide_name, config.loading)) if guide_name else None
    learner = SurrogateTrainer(config.surrogate, config.fitting, config.seed, config.loading)
    learner.learning_rate  # noqa: B018 - raises where the surrogate does not exist
    learner.check()
    return Opened(pool, victim, permission, guide, learner)


def write_victim(config: ExtractConfig, victim_run: Path) -> None:
    """Generate and score the victim's reports in a folder that several audits share, before they run in parallel."""
    if state(victim_run) != "finished":
        preflight.check_address(config.victim, config.i_am_authorised)
        victim = open_model(config.victim, config.loading, [load_corpus(config.data).egress_data])
        preflight.check_permission(config.victim, victim.capabilities, config.i_am_authorised)
    _generate(config, config.victim, victim_run, config.victim_decoding)
    scored(victim_run, config.data, _scores_of(victim_run) / f"{VICTIM}_scored", config.measure)


def _scores_of(victim_run: Path) -> Path:
    return victim_run.parent / f"{victim_run.name}_scored"


def _query_victim(
    config: ExtractConfig,
    victim: Any,
    permission: preflight.Permission,
    attack_of: Callable[[VictimClient], Attack],
    out: Path,
) -> tuple[list[Query], dict[str, Any]]:
    """Run the attack; returns all queries in the ledger and what they cost."""
    scope = AuditScope(config.victim, config.budget, permission.authorised, config.price)
    with Ledger.open(out / LEDGER, scope, remote=permission.remote) as ledger:
        client_of = partial(
            VictimClient,
            defended_victim(config, victim, ledger, out),
            ledger,
            out,
            decoding=config.victim_decoding if decodes_here(victim) else None,
            batch_size=config.batch_size,
            workers=config.workers,
            accounts=[f"account {number + 1}" for number in range(config.accounts)],
        )
        # A model in this process blocks no account and costs nothing: refusals do not end its audit.
        client = client_of(patience=config.stop_after_refusals if victim.capabilities.black_box else None)
        probing: dict[str, Any] = {}
        blocked = None
        try:
            # Queries that a remote victim lost are spent: the attack then ends with fewer answers than the budget.
            with suppress(BudgetExceeded):
                attack = attack_of(client)
                if config.probes and config.method != "none":
                    attack, probe = probe_gate(replace(attack, client=client_of()), client)
                    probing = {"probing": probe.to_json()}
                run_attack(attack)
        except AccountsBlocked as error:
            blocked = {"refusals": error.refusals, "first": error.first + 1, "answer": error.answer}
        statement = ledger.statement()
        spent = {
            "spent": statement.spent,
            "answered": statement.answered,
            "refused": statement.refused,
            "cached": statement.cached,
            "lost": statement.lost,
            "cost": asdict(statement.cost),
            "stopped": blocked,
            **probing,
        }
        return ledger.queries(), spent


def defended_victim(config: ExtractConfig, victim: Any, ledger: Ledger, out: Path) -> Any:
    """The victim behind the configured defence, which counts the queries that are in the ledger already."""
    if config.defence is None:
        return victim
    from cxrlab.extraction.defence.base import defended, open_defence

    defence, _ = open_defence(config.defence, config.defence_settings, config.seed)
    # Answers from the cache never reached the victim.
    earlier = [query.account for query in ledger.queries() if not query.cached]
    batch_size = None if victim.capabilities.black_box else BatchSize(config.batch_size, out)
    return defended(victim, defence, earlier=earlier, batch_size=batch_size)


def _train_and_measure(
    config: ExtractConfig, learner: SurrogateTrainer, queries: Sequence[Query], budget: int, victim_run: Path, out: Path
) -> dict[str, Any]:
    """Train a new surrogate on the first queries and measure it; the untouched one if there is nothing to learn from."""
    place = out / COPIES / str(budget)
    reason = None
    try:
        if not queries:
            raise EmptyTranscript("no query was made")
        write_transcript(training_queries(queries, config), out, place / "transcript", **transcript_settings(config))
        learner.fit(place / "transcript", place / "fit")
        name = f"hf:{place / 'fit' / CHECKPOINT}"
    except EmptyTranscript as error:
        name, reason = learner.untouched(place / "untouched"), str(error)
    _generate(config, name, place / WRITTEN, config.surrogate_decoding)
    found = measure_fidelity(
        victim_run, place / WRITTEN, config.data, place / MEASURED, config.measure, _scores_of(victim_run)
    )
    return {**found, "model": name, "predictions": str(Path(COPIES) / str(budget) / WRITTEN), "untouched": reason}


def _generate(config: ExtractConfig, model: str, out: Path, decoding: Decoding) -> None:
    """Generate a model's reports on the corpus, with the same prompt for every image."""
    settings = GenerateConfig(
        model,
        config.data,
        split=config.split,
        n=config.n,
        seed=config.seed,
        batch_size=config.batch_size,
        indication=False,
        control_studies=0,
        decoding=decoding if model.startswith(("hf:", "builtin:")) else Decoding(),
        loading=config.loading,
    )
    generate(settings, out)


def _options(config: ExtractConfig) -> dict[str, Any]:
    """Choices that the paper leaves open, and the other settings of the attack."""
    return {
        "surrogate": config.surrogate,
        "pool": config.pool,
        "rounds": config.rounds if config.method == "ada-steal" else 1,
        "oracle": config.oracle,
        **{name: getattr(config.alignment, name) for name in ("direction", "steps", "eps", "picture")},
        "guide": config.alignment.guide or "surrogate",
        "shares": plain(config.shares),
        "size": config.size,
        "colour": config.colour,
        "transcript": config.transcript,
        "wordings": config.fitting.wordings,
        "repeats": config.fitting.repeats,
        "defence": config.defence,
    }
