"""How much of report models can be copied by queries: attacks, detection and defences.

models/NAME                   victims and starts that the study trains, once for all seeds
seedS/victims/VARIANT         reports of the victim for the test split
seedS/extract/VARIANT         one whole attack with its copy, as `cxrlab extract` writes it
detect/                       detectors over the queries of the first seed
seedS/defend/NAME             one defence against one attack; defend/ has all of them
controls/                     copies beside texts without an image
oracle/VARIANT                answers of an oracle that is a language model, asked once for all seeds and variants
seedS/transfer/VARIANT        attack images made on copies, shown to their victim: an audit as `cxrlab robustness` writes it
attack.yaml watermark.key     the attack against the defences; a key for the watermark, drawn from the seed: no secret
extraction_seeds.json         figures over seeds, comparisons and tables
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

from cxrlab.core.config import raise_problems, to_yaml
from cxrlab.core.egress import check_encrypted
from cxrlab.core.errors import ConfigError, DataError, did_you_mean, short_repr
from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.extraction.config import DefendConfig, ExtractConfig, is_text_model
from cxrlab.models.decoding import STRATEGIES, USED_BY
from cxrlab.studies.corpora import pool_with_folders, with_folders
from cxrlab.studies.engine import CACHE, CHECKPOINT, SUMMARY, Kind, Part, StudyConfig, StudyRecipe, Trial, merged
from cxrlab.studies.over_seeds import PAIRED_METHOD, number_at, over_seeds, paired_seeds, value_at

TABLE, RESULT, DEFENCE = "extraction_seeds.json", "extraction.json", "defence.json"
COPIES, ATTACK, NOISE = "copies", "pgd", "noise"
VICTIM, TEXTS = "victim", ("the", "empty", "reviews")  # rows of a table that are no variants
SIDES = ("surrogate", "victim", "ratio", "fidelity")
# Of the transcript: how varied the victim's answers were.
VARIETY = (
    *("n", "silent", "distinct_reports", "distinct_finding_sets", "distinct_finding_sets_in_100", "abnormal_share"),
    *("finding_entropy", "vocabulary", "words", "commonest_report"),
)
VARIETY_BY_ROUND = ("n", "distinct_finding_sets", "abnormal_share", "finding_entropy")
Record = Mapping[str, Any]
ATTACK_FILE, KEY_FILE = "attack.yaml", "watermark.key"
# Settings that decide what the victim generates on the corpus and how that is scored.
_OF_VICTIM = ("victim", "data", "split", "n", "seed", "batch_size", "victim_decoding", "loading", "measure",
              "i_am_authorised")  # fmt: skip
# Settings that decide what an oracle answers.
_OF_ORACLE = ("oracle", "consulting", "oracle_llm")
# Settings that a defence takes from the attack.
_OF_ATTACK = ("victim", "data", "surrogate", "method", "pool", "budget", "seed", "price", "loading")
_MODEL_OF_STUDY = re.compile(r"\bmade:([A-Za-z0-9_-]+)")


@dataclass(frozen=True)
class ExtractionVariant:
    """One attack, given by what it changes in the shared settings."""

    changes: str  # what is different, in one sentence
    extract: Mapping[str, Any] = field(default_factory=dict)  # settings of `extract` that differ
    published: Mapping[str, Any] = field(default_factory=dict)  # metric → a published figure for it


@dataclass(frozen=True)
class StudyTable:
    """Variants that are shown together; one may stand in several tables."""

    variants: tuple[str, ...]  # their names, in the order of the rows
    about: str = ""  # what the table shows, in a sentence
    # Row → metric → a published figure, where it differs from the variant's own. Further rows are 'victim', by which
    # the others are divided, and the texts without an image (the, empty, reviews).
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExtractionStudyConfig(StudyConfig):
    """How much of report models can be copied by queries: variants of one attack, several seeds each.

    For models that you own or may test.

    Args:
        data: Name of the corpus on whose test split victims and copies are measured.
        extract: Settings of `extract` that all variants share. Corpora in pools are named (corpus:query@train,
            folder:pictures), and made:NAME is a model of the study.
        models: Name → settings of `train finetune` that make a victim or a start, once for all seeds.
        tables: Title → the variants that it shows; the first table is the main one.
        contrasts: Pairs [variant, against]: their difference on the same studies, by seed and over seeds.
        controls: Variants of one victim that are scored beside it and beside texts without an image, for the first
            seed.
        pairwise: Pairs [a, b] of variants whose reports a judge compares study by study.
        detect: Settings of `detect` for the first seed, and 'variants', whose queries are the streams.
        defend: Settings of `defend`, 'variant', the attack against the defences, and 'seeds', with how many of the study's
            seeds they are attacked (1).
        transfer: Settings of `robustness` for every seed, 'variants', on whose copies images are attacked before they are
            shown to the victim, and 'unrelated', a model that shares nothing with the victim (made:NAME is one of the study).
    """

    data: str
    extract: Mapping[str, Any]
    models: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = (
        "findings.f1",
        "findings.f1.side",
        "rougeL:coco",
        "chexpert14.micro.f1:uncertain-positive",
        "chexpert14.macro.f1:uncertain-positive",
        "green:rules",
        "errors.significant",
        "bleu4:coco",
    )
    tables: Mapping[str, Any] = field(default_factory=dict)
    contrasts: tuple[tuple[str, ...], ...] = ()
    controls: tuple[str, ...] = ()
    pairwise: tuple[tuple[str, ...], ...] = ()
    detect: Mapping[str, Any] = field(default_factory=dict)
    defend: Mapping[str, Any] = field(default_factory=dict)
    transfer: Mapping[str, Any] = field(default_factory=dict)
    variant_class = ExtractionVariant

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_names("models", self.models)
        self.check_corpus("data")
        problems = [
            f"{setting} holds {list(pair)}; write two different variants, such as [ada, knockoff]."
            for setting in ("contrasts", "pairwise")
            for pair in getattr(self, setting)
            if len(pair) != 2 or pair[0] == pair[1]
        ]
        if self.detect and not self.streams:
            problems.append("detect needs 'variants', the attacks whose queries the detectors get.")
        if self.defend and "variant" not in self.defend:
            problems.append("defend needs 'variant', the attack against the defences.")
        if self.transfer and not self.transferred:
            problems.append("transfer needs 'variants', on whose copies images are attacked.")
        count = self.defend.get("seeds", 1)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            problems.append(f"defend: seeds={short_repr(count)} is not usable; give a number of seeds, at least 1.")
            raise_problems(problems)
        named: dict[str, Iterable[str]] = {
            **{f"tables, '{title}'": table.variants for title, table in self.checked_tables().items()},
            **{pairs: [name for pair in getattr(self, pairs) for name in pair] for pairs in ("contrasts", "pairwise")},
            "controls": self.controls,
            "detect": self.streams,
            "transfer": self.transferred,
            "defend": [self.attack] if self.attack and "variant" in self.defend else [],
        }
        problems += [
            f"{setting}: there is no variant '{name}'.{did_you_mean(name, self.variants)}"
            for setting, names in named.items()
            for name in dict.fromkeys(names)
            if name not in self.variants
        ]
        raise_problems([*problems, *self._wrong_figures()])

    def checked_tables(self) -> dict[str, StudyTable]:
        """The tables by title; one `ConfigError` lists all problems."""
        return self.checked_rows("tables", StudyTable)

    @property
    def streams(self) -> tuple[str, ...]:
        """Variants whose queries detectors get."""
        return _names(self.detect)

    @property
    def transferred(self) -> tuple[str, ...]:
        """Variants on whose copies images are attacked."""
        return _names(self.transfer)

    @property
    def defend_seeds(self) -> tuple[int, ...]:
        """Seeds with which defences are attacked."""
        return tuple(self.seeds[: self.defend.get("seeds", 1)])

    @property
    def attack(self) -> str | None:
        """The variant that attacks the defences; None where there are none."""
        return str(self.defend.get("variant")) if self.defend else None

    def _wrong_figures(self) -> Iterator[str]:
        """Published figures that are no numbers, or of a row that their table does not have."""
        published: dict[str, Any] = {f"variants, '{name}'": row.published for name, row in self.chosen().items()}
        for title, table in self.checked_tables().items():
            for row, figures in table.published.items():
                published[f"tables, '{title}', '{row}'"] = figures
                if row not in (VICTIM, *TEXTS, *table.variants):
                    yield f"tables, '{title}': '{row}' has published figures and is not a row of it."
        for place, given in published.items():
            figures = list(given.values()) if isinstance(given, Mapping) else [given]
            if wrong := [one for one in figures if isinstance(one, bool) or not isinstance(one, (int, float))]:
                yield f"{place}: published has {short_repr(wrong[0])}; give metrics with a number each."


def _names(group: Mapping[str, Any]) -> tuple[str, ...]:
    given = group.get("variants", ())
    return tuple(map(str, given)) if isinstance(given, (list, tuple)) else (str(given),)


class ExtractionStudy(StudyRecipe):
    """Copies models with every variant and seed, compares the copies, and measures detectors and defences."""

    config: ExtractionStudyConfig
    config_class = ExtractionStudyConfig
    title = "What it costs to copy a report model"
    kinds = MappingProxyType(
        {
            "oracle": Kind("cxrlab.extraction.config:OracleConfig", "cxrlab.extraction.llm_oracle:ask_oracle"),
            "models": Kind("cxrlab.training.config:FinetuneConfig", "cxrlab.training.align_finetune:finetune"),
            "victims": Kind("cxrlab.extraction.config:ExtractConfig", "cxrlab.extraction.audit:write_victim"),
            "extract": Kind(
                "cxrlab.extraction.config:ExtractConfig",
                "cxrlab.extraction.audit:extract",
                ("victim_run", "oracle_run"),
            ),
            "transfer": Kind("cxrlab.robustness.config:RobustnessConfig", "cxrlab.robustness.audit:audit"),
            "detect": Kind(
                "cxrlab.extraction.detection.config:DetectConfig", "cxrlab.extraction.detection.detect:detect"
            ),
            "defend": Kind("cxrlab.extraction.config:DefendConfig", "cxrlab.extraction.defence.defend:defend"),
        }
    )

    def plan(self) -> None:
        """Oracles and models, then every variant and seed, then transfer, then detectors and defences for the first seed."""
        first = self.config.seeds[0]
        # (seed, variant) → folder of the audit with its copy, key of the copy, key of the unrelated model
        self._shown: dict[tuple[int, str], tuple[str, str, str | None]] = {}
        for name, variant in self.config.chosen().items():  # an oracle that cannot be reached ends the study at once
            self._add_oracle(name, merged(self.config.extract, variant.extract))
        for name, settings in self.config.models.items():
            place = f"models, '{name}'"
            given = self._resolved(settings, place, training=True)
            self.add("models", f"models/{name}", given, {"cache": str(self.out / CACHE)}, seed=first, place=place)
        super().plan()
        self._check_comparisons()
        self.raise_problems()  # the parts below would repeat them
        for seed in self.config.seeds if self.config.transfer else ():
            self._plan_transfer(seed)
        if self.config.detect:
            rest = {key: value for key, value in self.config.detect.items() if key != "variants"}
            given = self._resolved({"benign": self.config.data, **rest}, "detect")
            attacks = dict.fromkeys(self.find_trial(name, first).parts["extract"] for name in self.config.streams)
            own = {"stream": [str(self.out / folder) for folder in attacks], "seed": first}
            self.add("detect", "detect", given, own, seed=first, place="detect")
        if self.config.attack is not None:
            for seed in self.config.defend_seeds:
                self._plan_defences(self.config.attack, seed)

    def trial(self, name: str, variant: ExtractionVariant, seed: int) -> Mapping[str, str]:
        """One attack, and before it the reports of its victim for the corpus."""
        place = f"extract of '{name}'"
        given = self._resolved(merged(self.config.extract, variant.extract), place)
        own = {
            "data": str(self.corpora[self.config.data]),
            "seed": seed,
            "measure": {"metrics": list(self.config.metrics), "seed": seed},
        }
        given_victim, own_victim = (
            {key: value for key, value in one.items() if key in _OF_VICTIM} for one in (given, own)
        )
        victim = self.add(
            "victims", f"seed{seed}/victims/{name}", given_victim, own_victim, seed=seed, place=place
        ).folder
        own["victim_run"] = str(self.out / victim)
        if (oracle := self._add_oracle(name, given)) is not None:
            own["oracle_run"] = str(self.out / oracle.folder)
        extract = self.add("extract", f"seed{seed}/extract/{name}", given, own, seed=seed, place=place).folder
        return {"extract": extract, "victim": victim}

    def _add_oracle(self, name: str, given: Mapping[str, Any]) -> Part | None:
        """The part that asks the language model of an attack; None for an attack without one."""
        if given.get("method", ExtractConfig.method) != "ada-steal" or not is_text_model(str(given.get("oracle", ""))):
            return None
        asked = {key: given[key] for key in _OF_ORACLE if key in given}
        seed = self.config.seeds[0]  # one set of answers, whatever the seed of the attack
        place = f"oracle of '{name}'"
        return self.add("oracle", f"oracle/{name}", asked, {"seed": seed}, seed=seed, place=place, needs=())

    def check(self) -> None:
        """Refuse an oracle that its questions may not be sent to, before anything is trained."""
        super().check()
        for part in self.parts:
            if part.kind == "oracle":
                check_encrypted(part.config.oracle, part.config.oracle_llm.connection, "--oracle-llm.connection")

    def _check_comparisons(self) -> None:
        """Note comparisons of what is not measured on the same studies, or not of the same victim."""
        config = self.config
        trials = {trial.variant: trial for trial in self.trials if trial.seed == config.seeds[0]}
        groups = [(what, names) for what in ("contrasts", "pairwise") for names in getattr(config, what)]
        for what, names in [*groups, ("controls", config.controls)]:
            attacks = [self.part(trials[name].parts["extract"]).config for name in names]
            if len({(one.split, one.n) for one in attacks if one is not None}) > 1:
                self.problems.append(
                    f"{what}: {', '.join(names)} are not measured on the same studies; give them the same split and n."
                )
        if len({trials[name].parts["victim"] for name in config.controls}) > 1:
            self.problems.append(
                f"controls: {', '.join(config.controls)} do not have the same victim, measured in the same way."
            )

    def _plan_transfer(self, seed: int) -> None:
        """One audit for each victim: its own images, and those made on its copies and on the unrelated model."""
        rest = {key: value for key, value in self.config.transfer.items() if key != "variants"}
        given = dict(self._resolved(rest, "transfer"))
        unrelated = given.pop("unrelated", None)
        by_victim: dict[str, list[str]] = {}
        for name in self.config.transferred:
            folder = self.find_trial(name, seed).parts["extract"]
            by_victim.setdefault(self.part(folder).config.victim, []).append(name)
        for victim, names in by_victim.items():
            folders = list(dict.fromkeys(self.find_trial(name, seed).parts["extract"] for name in names))
            attack = self.part(folders[0]).config
            copies = [
                f"hf:{self.out / folder / COPIES / str(self.part(folder).config.budget) / 'fit' / CHECKPOINT}"
                for folder in folders
            ]
            usual: dict[str, Any] = {
                key: plain(getattr(attack, key)) for key in ("split", "n", "i_am_authorised", "loading")
            }
            usual |= {"attacks": [ATTACK, NOISE], "aims": ["report"], "questions": "none", "rounded": True}
            # Other victims decode in their own way.
            if victim.startswith(("hf:", "builtin:")) and "decoding" not in given:
                decoding = attack.victim_decoding
                usual["decoding"] = {
                    name: value
                    for name, value in plain(decoding).items()
                    if decoding.strategy in USED_BY.get(name, STRATEGIES)
                }
            versus = [*copies, *([unrelated] if unrelated else [])]
            own = {"model": victim, "data": str(self.corpora[self.config.data]), "versus": versus, "seed": seed}
            part = self.add(
                "transfer", f"seed{seed}/transfer/{names[0]}", merged(usual, given), own, seed=seed, place="transfer"
            )
            for name in names:
                place = folders.index(self.find_trial(name, seed).parts["extract"])
                last = ascii_lowercase[len(versus)] if unrelated else None
                self._shown[seed, name] = part.folder, ascii_lowercase[place + 1], last

    def _plan_defences(self, variant: str, seed: int) -> None:
        """Each defence of a seed as a part of its own, against the attack of one variant."""
        attack = self.part(self.find_trial(variant, seed).parts["extract"])
        rest = {key: value for key, value in self.config.defend.items() if key not in ("variant", "seeds")}
        given = self._resolved(rest, "defend")
        usual: dict[str, Any] = {
            "batch_size": attack.config.batch_size,
            "settings": {"key_file": str(self.out / KEY_FILE)},
        }
        if attack.config.victim.startswith(("hf:", "builtin:")):  # other victims decode in their own way
            usual["decoding"] = plain(attack.config.victim_decoding)
        given = {**merged(usual, given), "i_am_authorised": attack.config.i_am_authorised}
        own = {key: plain(getattr(attack.config, key)) for key in _OF_ATTACK}
        own["attack"] = str(self.out / ATTACK_FILE)
        for name in given.get("defences", DefendConfig.defences):
            one, folder = {**given, "defences": [name]}, f"seed{seed}/defend/{name}"
            needs = (*attack.needs, attack.folder)
            self.add("defend", folder, one, own, seed=seed, place="defend", needs=needs)

    def _resolved(self, given: Any, place: str, training: bool = False) -> Any:
        """Settings with corpora and models of the study replaced by folders; an unknown name becomes a problem."""
        if not isinstance(given, Mapping):
            return given  # refused where it becomes a config
        try:
            return self._by_folder({"data": self.config.data, **given} if training else given, place, training)
        except ConfigError as error:
            self.problems.append(str(error))
            return given

    def _by_folder(self, given: Mapping[str, Any], place: str, training: bool = False) -> dict[str, Any]:
        def checkpoint(found: re.Match[str]) -> str:
            models = {part.folder.removeprefix("models/"): part for part in self.parts if part.kind == "models"}
            if found[1] not in models:
                raise ConfigError(
                    f"{place}: the study makes no model '{found[1]}' before it.{did_you_mean(found[1], models)}"
                )
            return f"hf:{self.out / models[found[1]].folder / CHECKPOINT}"

        result = with_folders(given, self.corpora, place) if training else dict(given)
        for key in ("victim", "surrogate", "start", "encoder", "language_model", "unrelated"):
            if isinstance(name := result.get(key), str):
                result[key] = _MODEL_OF_STUDY.sub(checkpoint, name)
        if isinstance(pool := result.get("pool"), str):
            result["pool"] = pool_with_folders(pool, self.corpora, place)
        if "benign" in result:
            result["benign"] = with_folders({"data": result["benign"]}, self.corpora, place)["data"]
        if isinstance(chest := result.get("chest"), str):  # an image of a corpus, such as query/images/p000000s1.png
            name, _, image = chest.partition("/")
            result["chest"] = str(self.corpora[name] / image) if name in self.corpora and image else chest
        for key in ("defence_settings", "settings"):
            if isinstance(group := result.get(key), Mapping):
                result[key] = self._by_folder(group, place)
        return result

    def prepare(self, run: Run) -> None:
        """Check that corpora and pools hold enough images, and write the attack against the defences."""
        from cxrlab.extraction.preflight import pictures_needed
        from cxrlab.extraction.query_pools import open_pool

        super().prepare(run)
        attacks = [part.config for part in self.parts if part.kind == "extract"]
        self.check_splits(self.config.data, dict.fromkeys(config.split for config in attacks))
        needed: dict[tuple[str, int], int] = {}
        for config in attacks:
            key = config.pool, config.size
            needed[key] = max(needed.get(key, 0), pictures_needed(config))
        for (pool, size), count in needed.items():
            held = open_pool(pool, size=size, seed=0).count if count else None
            if held is not None and held < count:
                raise DataError(
                    f"the pool '{pool}' holds {held} images, but an attack needs {count}; take a larger one."
                )
        if self.config.attack is not None:
            seed = self.config.seeds[0]
            attack = self.part(self.find_trial(self.config.attack, seed).parts["extract"]).config
            # Neither smaller budgets nor a map change the copy, and both take their time.
            run.write(ATTACK_FILE, to_yaml(replace(attack, at=(), map_sentences=0)))
            run.write(KEY_FILE, generator(seed, "study", "watermark key").bytes(32).hex())

    def make(self, part: Part) -> None:
        """Run a part; a defence uses the variant's own attack as the one without a defence."""
        if part.kind == "transfer":
            versus = tuple(self._copy(name) or name for name in part.config.versus)
            super().make(replace(part, config=replace(part.config, versus=versus)))
            return
        if part.kind != "defend":
            super().make(part)
            return
        from cxrlab.extraction.defence.defend import FOLDER, Plan, audit_attack, defend

        undefended = self.out / part.needs[-1]
        audited = audit_attack(part.config)

        def attack(planned: Plan, folder: Path) -> Mapping[str, Any]:
            if planned.defence is None:
                return {**read_json(undefended / RESULT), FOLDER: undefended}
            return audited(planned, folder)

        defend(part.config, self.out / part.folder, attack)

    def _copy(self, planned: str) -> str | None:
        """A planned copy as it was made; the surrogate as it is where there was nothing to learn. None for other models."""
        place = Path(planned.removeprefix("hf:"))
        folder = place.parents[min(3, len(place.parents) - 1)]
        if not any(self.out / part.folder == folder for part in self.parts if part.kind == "extract"):
            return None
        measured = (folder / str(read_json(folder / RESULT)["predictions"])).parent
        for made in ("fit", "untouched"):
            if (measured / made / CHECKPOINT).is_dir():
                return f"hf:{measured / made / CHECKPOINT}"
        return str(self.part(str(folder.relative_to(self.out))).config.surrogate)

    def measured(self, trial: Trial) -> Mapping[str, Any]:
        """The content of extraction.json without its longest parts."""
        found = read_json(self.out / trial.parts["extract"] / RESULT)
        return {"extraction": {key: value for key, value in found.items() if key not in ("observations", "threat")}}

    def results(self, trials: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Figures over seeds, and every comparison."""
        defended = [part for part in self.parts if part.kind == "defend"]
        first = [part for part in defended if part.folder.startswith(f"seed{self.config.seeds[0]}/")]
        join_defences([self.out / part.folder for part in first], self.out / "defend")
        comparisons = {
            "contrasts": list(self._contrasts()),
            "pairwise": list(self._pairwise()),
            "controls": self._controls(),
            "transfer": self._transfer(),
        }
        if len(self.config.defend_seeds) > 1:
            comparisons["defences"] = defences_over_seeds(
                [read_json(self.out / part.folder / DEFENCE) for part in defended]
            )
        about = f"{len(self.config.variants)} attacks; seeds: {len(self.config.seeds)}."
        return {TABLE: {**extraction_table(self.config, trials), **comparisons}, SUMMARY: {"about": about}}

    def _contrasts(self) -> Iterator[dict[str, Any]]:
        from cxrlab.evaluation.scored_runs import read_tallies
        from cxrlab.extraction.audit import MEASURED

        seeds = self.config.seeds
        swaps = self.part(self.trials[0].parts["extract"]).config.measure.swaps
        for name, against in track(self.config.contrasts, "contrasts"):
            one, two = (
                [read_tallies(self._predictions(each, seed).parent / MEASURED / "surrogate_scored") for seed in seeds]
                for each in (against, name)
            )
            metrics = paired_seeds(list(zip(one, two, strict=True)), seeds, self.config.metrics, swaps)
            yield {"name": name, "against": against, "how": PAIRED_METHOD, "metrics": metrics}

    def _pairwise(self) -> Iterator[dict[str, Any]]:
        from cxrlab.extraction.fidelity import pairwise_wins

        data = self.corpora[self.config.data]
        for a, b in track(self.config.pairwise, "comparing reports pairwise"):
            found = [
                pairwise_wins(self._predictions(a, seed), self._predictions(b, seed), data, seed=seed)
                for seed in self.config.seeds
            ]
            yield pairwise_row(a, b, found, self.config.seeds)

    def _controls(self) -> dict[str, Any]:
        from cxrlab.extraction.control_texts import measure_controls

        if not self.config.controls:
            return {}
        seed = self.config.seeds[0]
        first = self.find_trial(self.config.controls[0], seed).parts
        texts = {
            "victim": self.out / first["victim"],
            **{name: self._predictions(name, seed) for name in self.config.controls},
        }
        measure = self.part(first["extract"]).config.measure
        data = self.corpora[self.config.data]
        return {"seed": seed, **measure_controls(texts, data, self.out / "controls", measure)}

    def _transfer(self) -> dict[str, Any]:
        from cxrlab.studies.transfer import transfer_table

        if not self.config.transfer:
            return {}
        seeds, names = self.config.seeds, self.config.transferred
        audits = {seed: {name: self.out / self._shown[seed, name][0] for name in names} for seed in seeds}
        keys = {name: self._shown[seeds[0], name][1:] for name in names}
        return transfer_table(audits, keys)

    def _predictions(self, variant: str, seed: int) -> Path:
        """Run folder with the reports of the copy of the whole budget."""
        folder = self.out / self.find_trial(variant, seed).parts["extract"]
        return folder / str(read_json(folder / RESULT)["predictions"])

    def page_runs(self) -> list[Path]:
        """The attacks of the main table with the first seed, detectors, defences and transfer."""
        tables = self.config.checked_tables()
        names = next(iter(tables.values())).variants if tables else [next(iter(self.config.variants))]
        runs = dict.fromkeys(self.find_trial(name, self.config.seeds[0]).parts["extract"] for name in names)
        more = [name for name in ("detect", "defend") if getattr(self.config, name)]
        first = self.config.seeds[0]
        shown = dict.fromkeys(self._shown[first, name][0] for name in self.config.transferred)
        return [self.out / folder for folder in (*runs, *more, *shown)]


def extraction_table(config: ExtractionStudyConfig, trials: Sequence[Record]) -> dict[str, Any]:
    """Content of extraction_seeds.json without its comparisons, from the lines of trials.jsonl."""
    by_id = {(str(trial["variant"]), int(trial["seed"])): trial for trial in trials}
    variants = config.chosen()
    first = by_id[next(iter(variants)), config.seeds[0]]["extraction"]
    return {
        "seeds": list(config.seeds),
        "metrics": list(config.metrics),
        "directions": {metric: value_at(first, "surrogate", metric, "direction") for metric in config.metrics},
        "n": max(int(trial["extraction"]["n"]) for trial in trials),
        "patients": max(int(trial["extraction"]["patients"]) for trial in trials),
        "variants": {
            name: _variant_row(config, variant, [by_id[name, seed] for seed in config.seeds])
            for name, variant in variants.items()
        },
        "tables": {title: _table(table, variants) for title, table in config.checked_tables().items()},
    }


def _variant_row(config: ExtractionStudyConfig, variant: ExtractionVariant, trials: Sequence[Record]) -> dict[str, Any]:
    """One row: the settings of the attack, the figures of the copy, the answers and the cost of the queries."""
    found = [trial["extraction"] for trial in trials]
    rounds = sorted({key for one in found for key in value_at(one, "transcript", "rounds") or {}})
    budgets = sorted({int(key) for one in found for key in one["curve"]})
    # The attack in the names of the study, not in folders of a machine.
    given = merged(config.extract, variant.extract)
    named = {key: given[key] for key in ("victim", "surrogate", "pool") if key in given}
    settings = {**found[0].get("options", {}), "method": found[0]["method"], "budget": found[0]["budget"], **named}

    def over(*keys: str) -> dict[str, Any]:
        return over_seeds(number_at(one, *keys) for one in found)

    def by_seed(side: str, metric: str) -> list[dict[str, Any]]:
        """Each seed with its interval by patient."""
        ends = ("value", "low", "high")
        return [
            {"seed": trial["seed"], **{end: value_at(trial["extraction"], side, metric, end) for end in ends}}
            for trial in trials
        ]

    return {
        "changes": variant.changes,
        "published": dict(variant.published),
        "asked": settings,
        "folders": [trial["extract"] for trial in trials],
        "metrics": {
            metric: {side: {**over(side, metric, "value"), "by_seed": by_seed(side, metric)} for side in SIDES}
            for metric in config.metrics
        },
        # Queries → figures of the copy after so many; unknown for a seed without such a copy.
        "curve": {
            str(budget): {metric: over("curve", str(budget), metric, "value") for metric in config.metrics}
            for budget in budgets
        },
        "transcript": {
            **{key: over("transcript", key) for key in VARIETY},
            "rounds": {
                one: {key: over("transcript", "rounds", one, key) for key in VARIETY_BY_ROUND} for one in rounds
            },
        },
        **{key: over(key) for key in ("spent", "answered", "refused")},
        "cost": over("cost", "amount"),
        "currency": value_at(found[0], "cost", "currency"),
        "untouched": [one.get("untouched") for one in found],
        "oracle": found[0].get("oracle"),
    }


def _table(table: StudyTable, variants: Mapping[str, ExtractionVariant]) -> dict[str, Any]:
    """A table: its rows, and published figures as a share of the published victim."""
    own = {name: variants[name].published for name in table.variants}
    published = {row: dict(figures) for row, figures in {**own, **table.published}.items() if figures}
    victim = published.get(VICTIM, {})
    ratios = {
        row: {metric: figure / victim[metric] for metric, figure in figures.items() if victim.get(metric)}
        for row, figures in published.items()
        if row != VICTIM
    }
    return {
        "about": table.about,
        "variants": list(table.variants),
        "published": published,
        "published_ratio": {row: figures for row, figures in ratios.items() if figures},
    }


def pairwise_row(a: str, b: str, found: Sequence[Record], seeds: Sequence[int]) -> dict[str, Any]:
    """How often a judge prefers each of two variants, over seeds; `found` holds `pairwise_wins` of each seed."""
    outcomes = {
        key: {
            **over_seeds(nan_if_none(one[key]["value"]) for one in found),
            "by_seed": [
                {"seed": seed, **{end: one[key].get(end) for end in ("value", "low", "high", "p") if end in one[key]}}
                for seed, one in zip(seeds, found, strict=True)
            ],
        }
        for key in ("a_better", "equal", "b_better", "net")
    }
    return {"a": a, "b": b, "judge": found[0]["judge"], "n": [one["n"] for one in found], **outcomes}


def defences_over_seeds(found: Sequence[Record]) -> dict[str, Any]:
    """Defence → its benign cost and the loss of the copy for each attacker, over seeds.

    Args:
        found: Content of defence.json for each defence and seed, the seeds of a defence in order.
    """
    rows: dict[str, list[Record]] = {}
    for one in found:
        for name, row in one["defences"].items():
            rows.setdefault(name, []).append(row)

    def over(several: Sequence[Record], *keys: str) -> dict[str, Any]:
        ends = ("difference", "low", "high")
        by_seed = [{end: value_at(row, *keys, end) for end in ends} for row in several]
        return {**over_seeds(number_at(row, *keys, "difference") for row in several), "by_seed": by_seed}

    return {
        name: {
            "benign": over(several, "benign", "difference", "findings.f1"),
            "copy": {kind: over(several, "attacks", kind, "loss") for kind in several[0]["attacks"]},
        }
        for name, several in rows.items()
    }


def join_defences(runs: Sequence[Path], out: Path) -> None:
    """Join runs of one defence each, against the same attack, into one table with one recommendation, as `defend` does."""
    from cxrlab.extraction.defence.security_summary import security_summary

    settings = {"defences": [run.name for run in runs]}
    if not runs or finished(out, settings):
        return
    found = [read_json(run / DEFENCE) for run in runs]
    result: dict[str, Any] = {key: value for key, value in found[0].items() if key != "summary"}
    result["defences"] = {name: row for one in found for name, row in one["defences"].items()}
    with Run.open(out, settings) as run:
        run.write(DEFENCE, {**result, "summary": security_summary(result)})
