"""An extraction audit from the first question to the measured copy.

    ledger.sqlite       every question with its answer, cost and round; under whose leave
    pictures/           every picture that was asked, by its sha256
    rounds/             plans and surrogates of the attack, see `rounds`
    victim/             what the victim writes on the corpus
    copies/N/           the surrogate of the first N queries, trained from its start, with what it writes and scores
    oracle.json         what the oracle said, where it is a language model; oracle/ has every request
    map.json            sentences of the victim's answers on a plane
    examples.json       pictures before and after they were moved, with the victim's words on both
    extraction.json     what it came to

A stopped audit goes on with the very question at which it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.endpoints import connection_operational_fields
from cxrlab.core.environment import require
from cxrlab.core.files import read_json
from cxrlab.core.json_values import plain
from cxrlab.core.llm import llm_operational_fields
from cxrlab.core.memory import BatchSize
from cxrlab.core.runs import Run, finished, state
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generate import generate
from cxrlab.evaluation.open_models import open_model
from cxrlab.extraction.ada_steal import EncoderGuide
from cxrlab.extraction.config import ExtractConfig
from cxrlab.extraction.evasion import probe_gate
from cxrlab.extraction.fidelity import measure_fidelity, scored
from cxrlab.extraction.ledger import LEDGER, BudgetExceeded, Ledger
from cxrlab.extraction.llm_oracle import query_llm_oracle
from cxrlab.extraction.oracles import Descriptions
from cxrlab.extraction.pools import open_pool
from cxrlab.extraction.preflight import (
    THREAT,
    Permission,
    check_address,
    check_data_egress,
    check_measurable,
    check_permission,
    check_pool,
    recorded_authorisation,
    shared_weights,
    shared_weights_sentence,
    threat_model,
    unused_settings,
)
from cxrlab.extraction.records import AuditScope, Query
from cxrlab.extraction.rounds import UNREADABLE, Attack, run_attack, training_queries, was_aligned, wording
from cxrlab.extraction.surrogate import CHECKPOINT, EmptyTranscript, LlavaLearner, write_transcript
from cxrlab.extraction.transcript_analysis import MappedReport, diversity_by_round, examples, report_map
from cxrlab.extraction.victim_client import AccountsBlocked, VictimClient
from cxrlab.models.decoding import Decoding, SupportsDecoding
from cxrlab.models.names import load_encoder

RESULT, MAP, EXAMPLES, COPIES, VICTIM = "extraction.json", "map.json", "examples.json", "copies", "victim"
MEASURED, WRITTEN = "measured", "written"
OPERATIONAL = (
    "workers",
    "i_am_authorised",
    *llm_operational_fields("oracle_llm"),
    *connection_operational_fields("loading.connection"),
)


def extract(config: ExtractConfig, out: Path) -> dict[str, Any]:
    """Copy a victim by queries and measure the copy; returns the content of extraction.json.

    Args:
        config: Settings.
        out: Run folder; a stopped audit goes on, a finished one with the same settings is left as it is.
    """
    require("models")
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return dict(read_json(out / RESULT))
    leave = recorded_authorisation(out, config.victim, config.i_am_authorised)
    check_address(config.victim, leave)
    measured = check_measurable(config)  # what could not be measured is told before anything is asked
    pool = open_pool(config.pool, size=config.size, seed=config.seed)
    check_pool(config, pool, measured)
    victim = open_model(config.victim, config.loading, check_data_egress(config, pool, measured))
    permission = check_permission(config.victim, victim.capabilities, leave)
    guide = _guide(config)
    learner = LlavaLearner(config.surrogate, config.fitting, config.seed, config.loading)
    connected = victim.capabilities.black_box
    useless = unused_settings(config, chooses_words=isinstance(victim, SupportsDecoding), connected=connected)
    shared = shared_weights(config.victim, config.surrogate, config.alignment.guide if guide else None)
    rate = learner.learning_rate  # a surrogate that is not there is told before anything is asked
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        told = f"{threat_model(config.victim, config.budget, config.price, permission)} {shared_weights_sentence(shared)}".strip()
        run.write(THREAT, {"victim": config.victim, "threat": told, "authorised": permission.authorised})
        said, consulted = _consulted(config, out)
        attack = partial(Attack, pool=pool, learner=learner, config=config, folder=out, guide=guide, descriptions=said)
        victim_run = config.victim_run or out / VICTIM
        if connected:  # before the attack: whom it gets stopped would not be shown a single report afterwards
            _written(config, config.victim, victim_run, config.victim_decoding)
        queries, spent = _asked(config, victim, permission, attack, out)
        del victim
        _written(config, config.victim, victim_run, config.victim_decoding)
        copies = {
            budget: _copied(config, learner, queries[:budget], budget, victim_run, out)
            for budget in _budgets(config, queries)
        }
        found = {
            "threat": told,
            "authorised": permission.authorised,
            "method": config.method,
            "budget": config.budget,
            **spent,
            **_final(copies),
            "curve": {str(budget): copy.get("surrogate", {}) for budget, copy in copies.items()},
            "fidelity_curve": {str(budget): copy.get("fidelity", {}) for budget, copy in copies.items()},
            "transcript": diversity_by_round(queries, config.seed),
            "unreadable": read_json(out / UNREADABLE) if (out / UNREADABLE).is_file() else {},
            "options": {**_options(config), "learning_rate": rate, "shared_with_victim": shared},
            "oracle": consulted,
            "unused_settings": useless,
        }
        _shown(run, config, queries)
        run.write(RESULT, plain(found))
    return dict(plain(found))


def write_victim(config: ExtractConfig, victim_run: Path) -> None:
    """What the victim writes on the corpus and how it scores, ahead of the audits that share it.

    Audits that run side by side would write the same folders at once; after this they find them finished.

    Args:
        config: Settings of any of them.
        victim_run: The folder that they all name.
    """
    if state(victim_run) != "finished":
        check_address(config.victim, config.i_am_authorised)
        victim = open_model(config.victim, config.loading, [load_corpus(config.data).egress_data])
        check_permission(config.victim, victim.capabilities, config.i_am_authorised)
    _written(config, config.victim, victim_run, config.victim_decoding)
    scored(victim_run, config.data, _scores_of(victim_run) / f"{VICTIM}_scored", config.measure)


def _scores_of(victim_run: Path) -> Path:
    return victim_run.parent / f"{victim_run.name}_scored"


def _asked(
    config: ExtractConfig, victim: Any, permission: Permission, attack_at: Callable[[VictimClient], Attack], out: Path
) -> tuple[list[Query], dict[str, Any]]:
    """Everything that was asked, as the ledger has it, and what it cost."""
    terms = AuditScope(config.victim, config.budget, permission.authorised, config.price)
    with Ledger.open(out / LEDGER, terms, remote=permission.remote) as ledger:
        desk_with = partial(
            VictimClient,
            _behind(config, victim, ledger, out),
            ledger,
            out,
            decoding=config.victim_decoding if isinstance(victim, SupportsDecoding) else None,
            batch_size=config.batch_size,
            workers=config.workers,
            accounts=[f"account {number + 1}" for number in range(config.accounts)],
        )
        # A model in this process shuts nobody out for good and costs nothing: it is asked to the end.
        desk = desk_with(patience=config.stop_after_refusals if victim.capabilities.black_box else None)
        probing: dict[str, Any] = {}
        stopped = None
        try:
            # Units that a remote victim lost are spent: the attack then ends with the answers that there are.
            with suppress(BudgetExceeded):
                attack = attack_at(desk)
                if config.probes and config.method != "none":
                    attack, found = probe_gate(replace(attack, desk=desk_with()), desk)
                    probing = {"probing": found.to_json()}
                run_attack(attack)
        except AccountsBlocked as end:
            stopped = {"refusals": end.refusals, "first": end.first + 1, "said": end.said}
        statement = ledger.statement()
        spent = {
            "spent": statement.spent,
            "answered": statement.answered,
            "refused": statement.refused,
            "cached": statement.cached,
            "lost": statement.lost,
            "cost": asdict(statement.cost),
            "stopped": stopped,
            **probing,
        }
        return ledger.queries(), spent


def _consulted(config: ExtractConfig, out: Path) -> tuple[Descriptions | None, dict[str, Any] | None]:
    """What a language model said as oracle and what became of its answers; asked before the victim is."""
    if config.method != "ada-steal" or not config.oracle_is_a_model:
        return None, None
    return query_llm_oracle(config.oracle, config.oracle_llm, config.consulting, config.seed, out)


def _guide(config: ExtractConfig) -> EncoderGuide | None:
    """The encoder by which pictures are moved, where the settings name one that is of use."""
    if config.method != "ada-steal" or config.alignment.guide is None:
        return None
    return EncoderGuide(load_encoder(config.alignment.guide, config.loading))


def _behind(config: ExtractConfig, victim: Any, ledger: Ledger, out: Path) -> Any:
    """The victim, behind its defence where it has one."""
    if config.defence is None:
        return victim
    from cxrlab.extraction.defence.base import defended, open_defence

    defence, _ = open_defence(config.defence, config.defence_settings, config.seed)
    # What was answered from the ledger came to nobody.
    earlier = [query.account for query in ledger.queries() if not query.cached]
    batch_size = None if victim.capabilities.black_box else BatchSize(config.batch_size, out)
    return defended(victim, defence, earlier=earlier, batch_size=batch_size)


def _budgets(config: ExtractConfig, queries: Sequence[Query]) -> list[int]:
    if config.method == "none":
        return [0]
    return [*sorted({budget for budget in config.at if budget < len(queries)}), len(queries)]


def _copied(
    config: ExtractConfig, learner: LlavaLearner, queries: Sequence[Query], budget: int, victim_run: Path, out: Path
) -> dict[str, Any]:
    """A new surrogate from the first queries, measured; the untouched one where there is no query to learn from."""
    place = out / COPIES / str(budget)
    reason = None
    try:
        if not queries:
            raise EmptyTranscript("nothing was asked")
        write_transcript(training_queries(queries, config), out, place / "transcript", **wording(config))
        learner.fit(place / "transcript", place / "fit")
        name = f"hf:{place / 'fit' / CHECKPOINT}"
    except EmptyTranscript as error:
        name, reason = learner.untouched(place / "untouched"), str(error)
    _written(config, name, place / WRITTEN, config.surrogate_decoding)
    found = measure_fidelity(
        victim_run, place / WRITTEN, config.data, place / MEASURED, config.measure, _scores_of(victim_run)
    )
    return {**found, "model": name, "predictions": str(Path(COPIES) / str(budget) / WRITTEN), "untouched": reason}


def _written(config: ExtractConfig, model: str, out: Path, decoding: Decoding) -> None:
    """What a model writes on the corpus, asked in the same words about every image."""
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


def _final(copies: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What the copy of the whole budget came to, in the words of the contract."""
    last = copies[max(copies)]
    kept = ("n", "patients", "victim", "surrogate", "fidelity", "ratio", "difference", "observations", "left_out")
    told = {key: last[key] for key in kept}
    return {**told, "predictions": last["predictions"], "untouched": last["untouched"]}


def _options(config: ExtractConfig) -> dict[str, Any]:
    """What the paper leaves open and was chosen here, beside the rest of the attack."""
    align = config.alignment
    return {
        "surrogate": config.surrogate,
        "pool": config.pool,
        "rounds": config.rounds if config.method == "ada-steal" else 1,
        "oracle": config.oracle,
        "direction": align.direction,
        "steps": align.steps,
        "eps": align.eps,
        "picture": align.picture,
        "guide": align.guide or "surrogate",
        "size": config.size,
        "transcript": config.transcript,
        "wordings": config.fitting.wordings,
        "repeats": config.fitting.repeats,
        "defence": config.defence,
    }


def _shown(run: Run, config: ExtractConfig, queries: Sequence[Query]) -> None:
    """The map and the examples, for a page."""
    if config.map_sentences and queries:
        reports = [
            MappedReport(one.report, one.round, "perturbed" if was_aligned(one, config) else "clean") for one in queries
        ]
        mapped = report_map(reports, most=config.map_sentences, seed=config.seed)
        run.write(MAP, plain(mapped))
    run.write(EXAMPLES, plain(examples(run.folder, queries)))
