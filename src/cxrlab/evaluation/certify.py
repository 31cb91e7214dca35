"""Certify a prediction file: check for copied, constant or unrelated reports, and give a verdict in words.

certificate.json   the verdict and every check with its numbers
evidence.jsonl     what the checks found on each study
scores.json        and the other files that `score` writes
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import dumps
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.corpus import STUDIES, Corpus, load_corpus
from cxrlab.evaluation.certificate import DECIDING, Certificate, Check, Facts, Verdict, decide
from cxrlab.evaluation.check_reports import (
    EXAMPLES,
    Flags,
    Sample,
    check_content,
    check_own_references,
    check_prevalence,
    check_training_overlap,
    check_variety,
    collect_evidence,
)
from cxrlab.evaluation.config import CertifyConfig, GenerateConfig, MatchSettings, ScoreSettings
from cxrlab.evaluation.generate import Images, generate
from cxrlab.evaluation.image_dependence import pair_with_other_patients
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.report_files import split_image_id
from cxrlab.evaluation.score import ScoreSheet, constant_normal, score_inputs, write_sheet
from cxrlab.evaluation.score_inputs import Inputs, Texts, Unit, load_inputs, read_predictions, read_references
from cxrlab.evaluation.select_metrics import select_metrics
from cxrlab.metrics.base import Tally, default_names, families
from cxrlab.metrics.report_pairs import wordless
from cxrlab.metrics.statistics.intervals import Estimate, Resamples
from cxrlab.metrics.statistics.paired_tests import MINIMUM_PATIENTS

CERTIFICATE, EVIDENCE = "certificate.json", "evidence.jsonl"
CLINICAL = (
    DECIDING, "findings.f1.side", "chexpert14.macro.f1:uncertain-positive", "chexpert5.micro.f1:uncertain-positive",
    "clinical:rules", "errors.significant",
)  # fmt: skip
LEXICAL = ("rougeL:google", "bleu4:coco", "cider:coco")
MOST_UNUSABLE = 0.1  # share of studies without a usable image up to which retrieval is tested
SHUFFLES = 5  # shuffles of the reports among patients; their counts are averaged
# Baseline → name of its check, and what the reports are compared with.
BASELINES = {
    "shuffled": ("fit to the studies", "the same reports shuffled among patients"),
    "constant": ("better than a constant report", "one normal report for all"),
    "retrieved": ("better than retrieval", "the report of the most similar training image"),
}


def certify(
    predictions: Texts,
    references: Texts | None = None,
    *,
    training: Texts | None = None,
    controls: Sequence[str | os.PathLike[str]] = (),
    metrics: Sequence[str] | None = None,
    section: str = "findings",
    split: str | None = None,
    unit: Unit = "auto",
    allow_missing: bool = False,
    columns: Sequence[str] = (),
    by_row: bool = False,
    trials: int = 1000,
    level: float = 0.95,
    seed: int = 7,
) -> Certificate:
    """Whether a prediction file is what it claims to be; see `CertifyConfig` for the arguments."""
    matching = MatchSettings(
        section=section, split=split, unit=unit, allow_missing=allow_missing, columns=tuple(columns), by_row=by_row
    )
    inputs = _load(predictions, references, matching)
    inputs, remark = _add_controls(inputs, controls)
    library = _read_training(training, section)
    settings = ScoreSettings(trials=trials, level=level, seed=seed)
    return _Examination(inputs, references, training, library, remark, metrics, settings).certificate("")


def run_certify(config: CertifyConfig, out: Path | None = None) -> Certificate:
    """Certify and write the run folder; a finished run with the same settings and texts is left as it is."""
    inputs = _load(config.predictions, config.references, config)
    inputs, remark = _add_controls(inputs, config.controls)
    library = _read_training(config.training, config.section)
    parts = (inputs.digest, inputs.extra, inputs.missing, inputs.control_reports, library)
    digest = hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
    if out is not None and finished(out, config, seed=config.seed):
        stored = Certificate.from_json(read_json(out / CERTIFICATE))
        if stored.digest != digest:
            raise RunError(f"{out} certifies other texts under the same paths; choose another folder with --out.")
        return stored
    with ExitStack() as stack:
        run = None if out is None else stack.enter_context(Run.open(out, config, seed=config.seed))
        if config.model is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if run is None else run.folder
            inputs, remark = _add_controls(inputs, [_generate_with_controls(config, inputs, folder / "model")])
        found = _Examination(
            inputs,
            config.references,
            config.training,
            library,
            remark,
            config.metrics or None,
            ScoreSettings(trials=config.trials, level=config.level, seed=config.seed),
        )
        certificate = found.certificate(digest)
        if run is not None:
            run.write(EVIDENCE, "".join(dumps(line) + "\n" for line in found.evidence()))
            write_sheet(run, found.sheet)
            run.write(CERTIFICATE, certificate.to_json())
    return certificate


def _load(predictions: Texts, references: Texts | None, settings: MatchSettings) -> Inputs:
    """Matched pairs; what does not match is listed, not refused."""
    both = (predictions, None) if references is None else (references, predictions)
    try:
        return load_inputs(*both, **settings.matching, matched_only=True)
    except DataError as error:
        if references is None:
            raise DataError(f"{error} References elsewhere are given with --references.") from None
        raise


def _generate_with_controls(config: CertifyConfig, inputs: Inputs, out: Path) -> Path:
    """A run of `generate` for some studies of the corpus, with control images."""
    assert config.model is not None and config.references is not None
    if not (config.references / STUDIES).is_file():
        raise ConfigError(f"--model generates from images, and {config.references} is no corpus folder.")
    corpus = load_corpus(config.references)
    by_image = _by_image(inputs, corpus)
    keys = {split_image_id(pair.id)[0] if by_image else pair.id for pair in inputs.pairs}
    splits = sorted({study.split for study in corpus.studies() if study.id in keys and study.split})
    if len(splits) != 1:
        raise ConfigError(f"the predictions are of the splits {', '.join(splits) or 'none'}; choose one with --split.")
    settings = GenerateConfig(
        config.model,
        config.references,
        split=splits[0],
        unit="image" if by_image else "study",
        n=config.control_studies,
        seed=config.seed,
        examples=0,
        control_studies=config.control_studies,
        decoding=config.decoding,
        loading=config.loading,
    )
    generate(settings, out)
    return out


def _by_image(inputs: Inputs, corpus: Corpus) -> bool:
    """Whether the predictions are of single images of a corpus, with ids `study#k`."""
    known = set(corpus.ids())
    return any(pair.id not in known for pair in inputs.pairs)


def _add_controls(inputs: Inputs, runs: Sequence[str | os.PathLike[str]]) -> tuple[Inputs, str]:
    """The inputs with the control-image predictions of these runs, and why they do not count, if so.

    Reports for control images say something about the file only if the same run's own reports are those of the file.
    """
    if not runs:
        return inputs, ""
    controls, same, shared = dict(inputs.control_reports), 0, 0
    candidates = {pair.id: pair.candidate or "" for pair in inputs.pairs}
    for path in runs:
        source = read_predictions(path)
        if not source.control_reports:
            raise DataError(f"{path} holds no predictions for control images; generate them with --control-studies.")
        for kind, texts in source.control_reports.items():
            controls[kind] = texts
        own = {key: text or "" for key, text in source.items.items() if key in candidates}
        shared += len(own)
        same += sum(text.split() == candidates[key].split() for key, text in own.items())
    if not shared:
        return inputs, "the run with control images holds none of these studies"
    if same < 0.9 * shared:
        return inputs, (
            f"the run with control images generated the same report as the file for {same:,} of {shared:,} studies only, "
            "so that it is another model or setting"
        )
    return replace(inputs, control_reports=controls), ""


def _read_training(training: Texts | None, section: str) -> tuple[str, ...]:
    """The training reports, of a corpus with splits those of its train split; none where none are given."""
    if training is None:
        return ()
    source = read_references(training, section)
    splits = {reference.split for reference in source.items.values()}
    wanted = [one for one in source.items.values() if "train" not in splits or one.split == "train"]
    texts = tuple(one.text for one in wanted if one.text and not wordless(one.text))
    if not texts:
        raise DataError(f"{source.name} holds no report text to compare with; check --training and --section.")
    return texts


@dataclass
class _Examination:
    """Every check of one file, with what several of them share."""

    inputs: Inputs
    references: Texts | None
    training: Texts | None
    library: Sequence[str]
    control_remark: str
    metrics: Sequence[str] | None
    settings: ScoreSettings

    def certificate(self, digest: str) -> Certificate:
        """The verdict and the checks."""
        variety, content, copies = (
            check_variety(self._sample),
            check_content(self._sample),
            check_own_references(self._sample),
        )
        overlap, image = self._overlap[0], self._check_image()
        checks = (
            self._check_matching(),
            variety,
            content,
            *(self._check_gain(baseline) for baseline in BASELINES),
            check_prevalence(self._sample),
            copies,
            overlap,
            image,
            self._check_size(),
        )
        untested = {
            "overlap with training reports (--training)": overlap.verdict == "not tested",
            "image dependence (--controls or --model)": self.sheet.image_dependence is None,
        }
        inputs, dependence = self.inputs, self.sheet.image_dependence
        text, findings = variety.numbers["most_frequent"], variety.numbers["most_frequent_findings"]
        copied, half = overlap.numbers.get("verbatim", {}), copies.numbers["half"] or {}
        gains = {name: self._gain("constant", name) for name in ("errors.significant", *LEXICAL)}
        fewer_errors = gains["errors.significant"]
        facts = Facts(
            n=len(inputs.pairs),
            patients=self._sample.resamples.clusters.count,
            predictions=len(inputs.pairs) + len(inputs.extra),
            references=len(inputs.pairs) + len(inputs.missing),
            extra=len(inputs.extra),
            missing=len(inputs.missing),
            distinct=variety.numbers["reports"]["distinct"],
            repeated=text["predictions"],
            repeated_gap=text["difference"],
            abnormal=int(np.nansum(self._sample.normal[0] == 0)),
            abnormal_references=int(np.nansum(self._sample.normal[1] == 0)),
            normal_gap=content.numbers["normal"]["difference"],
            empty=content.numbers["empty"]["predictions"],
            empty_gap=content.numbers["empty"]["difference"],
            silent=content.numbers["silent"]["predictions"],
            silent_gap=content.numbers["silent"]["difference"],
            same=findings["predictions"],
            same_gap=findings["difference"],
            compared=copies.numbers["compared"],
            own=copies.numbers["own_reference"],
            own_gap=copies.numbers["difference"],
            half=half.get("predictions"),
            half_gap=half.get("difference"),
            detected=content.numbers["detected"],
            value=self._tallies[""][DECIDING].value,
            shuffled=self._tallies["shuffled"][DECIDING].value if "shuffled" in self._tallies else float("nan"),
            gain=self._gain("shuffled", DECIDING) if "shuffled" in self._tallies else None,
            wording=tuple(name for name in LEXICAL if gains[name].low > 0),
            errors_gap=replace(fewer_errors, value=-fewer_errors.value, low=-fewer_errors.high, high=-fewer_errors.low),
            copied=copied.get("predictions"),
            copied_references=copied.get("references"),
            copied_gap=copied.get("difference"),
            image=None if dependence is None else dependence.verdict,
            image_sentence="" if dependence is None else dependence.sentence,
            untested=tuple(what for what, lacking in untested.items() if lacking),
        )
        rule, headline = decide(facts)
        return Certificate(rule.name, rule.severity, headline, checks, facts.n, facts.patients, digest)

    @cached_property
    def sheet(self) -> ScoreSheet:
        """The scores, as `score` writes them."""
        names = dict.fromkeys([*(self.metrics or default_names()), *CLINICAL, *LEXICAL])
        return score_inputs(self.inputs, select_metrics(list(names)), self.settings)

    def evidence(self) -> list[dict[str, Any]]:
        """One record for each study."""
        return collect_evidence(self._sample, self._overlap[1])

    @cached_property
    def _sample(self) -> Sample:
        patients, ids = [pair.patient or pair.id for pair in self.inputs.pairs], [pair.id for pair in self.inputs.pairs]
        rngs = [generator(self.settings.seed, "certify", "deal", str(k)) for k in range(SHUFFLES)]
        shuffles = [pair_with_other_patients(patients, ids, rng) for rng in rngs]
        resamples = Resamples(
            patients, trials=self.settings.trials, rng=generator(self.settings.seed, "certify", "intervals")
        )
        return Sample(
            self.sheet.batch, resamples, self.settings.level, [shuffle for shuffle in shuffles if shuffle is not None]
        )

    @cached_property
    def _overlap(self) -> tuple[Check, Flags]:
        return check_training_overlap(self._sample, self.library)

    @cached_property
    def _retrieved(self) -> tuple[list[str], str]:
        """The report of the most similar training image for each study, and a remark; none, and why, where untested.

        A study whose image cannot be used keeps its own report, which counts as no gain.
        """
        paths = [Path(one) for one in (self.training, self.references) if isinstance(one, (str, os.PathLike))]
        if self.training is None:
            return [], "give the training corpus with --training."
        if len(paths) < 2 or not all((path / STUDIES).is_file() for path in paths):
            return [], "retrieval needs a corpus with images for both --training and --references."
        train = {study.id for study in load_corpus(paths[0]).studies("train") if study.images}
        if not train:
            return [], f"the train split of {paths[0]} has no images."
        if paths[0].samefile(paths[1]) and any(
            {pair.id, pair.id.rpartition("#")[0]} & train for pair in self.inputs.pairs
        ):
            return [], f"the studies are themselves in the train split of {paths[0]}."
        try:
            corpus = load_corpus(paths[1])
            model = open_model(f"retrieval:{paths[0]}", None, [corpus.egress_data])
            images = Images(corpus, by_image=_by_image(self.inputs, corpus))
        except CxrlabError as error:  # the other checks still count
            return [], str(error)
        texts, unusable = list[str](), list[str]()
        for pair in track(self.inputs.pairs, "retrieving training reports"):
            try:
                texts.append(model.generate([images.image(pair.id)])[0].text)
            except CxrlabError as error:  # no frontal image, an unreadable one, or a patient of both splits
                texts.append(pair.candidate or "")
                unusable.append(str(error))
        if len(unusable) > MOST_UNUSABLE * len(texts):
            return [], unusable[0]
        return texts, f" Studies without a usable image, counted as equal: {len(unusable):,}." * bool(unusable)

    @cached_property
    def _tallies(self) -> dict[str, dict[str, Tally]]:
        """Baseline → metric → counts; "" for the reports themselves."""
        batch, names = self.sheet.batch, [*CLINICAL, *LEXICAL]

        def count(candidates: Sequence[str]) -> dict[str, Tally]:
            other = batch.with_candidates(candidates)
            return {tally.metric.name: tally for family in families(names) for tally in family.tallies(other)}

        found = {"": {tally.metric.name: tally for tally in self.sheet.tallies}}
        found["constant"] = count(constant_normal(batch, generator(self.settings.seed)))
        if shuffles := self._sample.shuffles:
            counted = [
                count([batch.candidates[place] for place in shuffle])
                for shuffle in track(shuffles, "shuffling reports among patients")
            ]
            # Values are ratios of sums, so that averaged counts give the value over all shuffles.
            found["shuffled"] = {
                name: replace(one, rows=np.mean([shuffle[name].rows for shuffle in counted], axis=0))
                for name, one in counted[0].items()
            }
        if texts := self._retrieved[0]:
            found["retrieved"] = count(texts)
        return found

    def _gain(self, baseline: str, name: str) -> Estimate:
        """The metric of the reports minus that of a baseline, with the sign turned so that above 0 is better."""
        mine, other = self._tallies[""][name], self._tallies[baseline][name]
        one, two = self._sample.resamples.resample([mine, other])
        return (one.minus(two) if mine.metric.direction == "higher" else two.minus(one)).estimate(self.settings.level)

    def _check_matching(self) -> Check:
        inputs = self.inputs
        unmatched = {"predictions without a reference": inputs.extra, "references without a prediction": inputs.missing}
        matched, by = len(inputs.pairs), str(inputs.matching.get("by"))
        how = {"file": "within one file", "row": "row by row"}.get(by, "by id")
        sentence = f"{matched:,} of {matched + len(inputs.extra):,} predictions matched {how}; no id repeats."
        for what, keys in unmatched.items():
            if keys:
                sentence += f" {len(keys):,} {what}, such as {', '.join(keys[:EXAMPLES])}."
        numbers = {
            "matched": matched,
            "by": by,
            "extra": len(inputs.extra),
            "missing": len(inputs.missing),
            "taken_as_empty": inputs.matching.get("missing"),
            "examples": {what: keys[:EXAMPLES] for what, keys in unmatched.items()},
        }
        return Check("matched ids", "fail" if inputs.extra or inputs.missing else "pass", sentence, numbers)

    def _check_gain(self, baseline: str) -> Check:
        """The gain over one baseline by metric."""
        title, what = BASELINES[baseline]
        if baseline not in self._tallies:
            why = self._retrieved[1] if baseline == "retrieved" else "one patient has most of the studies."
            return Check(title, "not tested", f"Not tested: {why}", {})
        gains = {name: self._gain(baseline, name) for name in (*CLINICAL, *LEXICAL)}
        numbers = {
            name: {
                "predictions": self._tallies[""][name].value,
                "baseline": self._tallies[baseline][name].value,
                "direction": self._tallies[""][name].metric.direction,
                "gain": gain,
            }
            for name, gain in gains.items()
        }
        deciding, both = gains[DECIDING], numbers[DECIDING]
        sentence = (
            f"{DECIDING} {both['predictions']:.3f} against {both['baseline']:.3f} of {what}: "
            f"{deciding.value:+.3f} [{deciding.low:+.3f}, {deciding.high:+.3f}]."
        )
        if worse := [name for name in CLINICAL if gains[name].high < 0]:
            sentence += f" Worse in {', '.join(worse)}."
        if deciding.low <= 0 and (lexical := [name for name in LEXICAL if gains[name].low > 0]):
            sentence += f" Better only in {', '.join(lexical)}, which compare words."
        if baseline == "retrieved":
            sentence += self._retrieved[1]
        shown = not deciding.low <= 0
        verdict: Verdict = (
            "pass" if shown and not worse else "fail" if baseline == "shuffled" and not shown else "warning"
        )
        return Check(title, verdict, sentence, numbers)

    def _check_image(self) -> Check:
        found = self.sheet.image_dependence
        if found is None:
            why = self.control_remark or "give a run with control images (--controls), or the model (--model)"
            return Check(
                "image dependence", "warning" if self.control_remark else "not tested", f"Not tested: {why}.", {}
            )
        verdicts: Mapping[str, Verdict] = {"uses_image": "pass", "ignores_image": "fail", "unclear": "warning"}
        return Check("image dependence", verdicts[found.verdict], found.sentence, found.to_json())

    def _check_size(self) -> Check:
        count, studies = self._sample.resamples.clusters.count, len(self.inputs.pairs)
        numbers = {"studies": studies, "patients": count, "minimum_patients": MINIMUM_PATIENTS}
        if count >= MINIMUM_PATIENTS:
            return Check("sample size", "pass", f"{studies:,} studies of {count:,} patients.", numbers)
        sentence = f"Fewer than {MINIMUM_PATIENTS} patients ({count}): intervals are too narrow."
        return Check("sample size", "warning", sentence, numbers)
