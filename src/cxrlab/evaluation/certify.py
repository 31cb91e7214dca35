"""Certify a prediction file: is it what it claims to be? Checks with evidence, and a verdict in words.

    certificate.json   the verdict and every check with its numbers
    evidence.jsonl     what the checks found on each study
    scores.json        and the other files that `score` writes
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, chexpert_labels
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.data.corpus import STUDIES, load_corpus
from cxrlab.data.duplicates import NEAR_SHARE, PHRASE, closest, words
from cxrlab.evaluation.certificate import (
    DECIDING,
    OWN_REFERENCE,
    SAME_FINDINGS,
    Certificate,
    Check,
    Facts,
    Verdict,
    decide,
)
from cxrlab.evaluation.config import CertifyConfig, GenerateConfig
from cxrlab.evaluation.generate import Images, generate
from cxrlab.evaluation.image_dependence import pair_with_other_patients
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.score import ScoreSheet, constant_normal, score_inputs, write_sheet
from cxrlab.evaluation.score_inputs import Inputs, Texts, Unit, load_inputs, read_predictions, read_references
from cxrlab.metrics.base import Metric, Tally, default_names, families, mean_tally
from cxrlab.metrics.report_pairs import Batch, wordless
from cxrlab.metrics.statistics.intervals import Estimate, Resamples
from cxrlab.metrics.statistics.paired_tests import MINIMUM_PATIENTS

CERTIFICATE, EVIDENCE = "certificate.json", "evidence.jsonl"
CLINICAL = (
    DECIDING, "findings.f1.side", "chexpert14.macro.f1:uncertain-positive", "chexpert5.micro.f1:uncertain-positive",
    "clinical:rules", "errors.significant",
)  # fmt: skip
LEXICAL = ("rougeL:google", "bleu4:coco", "cider:coco")
DEALS = 5  # ways in which the reports are dealt to other patients; their counts are averaged
LEAST_TELLING = 20  # references with a finding and a text of their own, before only these are compared with the reports
LEAST_PHRASES = 8  # of two texts before one can be found inside the other
NORMAL = "No Finding"
EXAMPLES = 3
_MASK = re.compile(r"x{3,}|_{2,}", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?:;][\"')\]]*\s*$")
Flags = NDArray[np.float64]  # 1, 0 or not-a-number for each pair


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
    inputs = _load(predictions, references, section, split, unit, allow_missing, columns, by_row)
    inputs, remark = _add_controls(inputs, controls)
    return _Examination(inputs, references, training, section, remark, metrics, trials, level, seed).certificate


def run_certify(config: CertifyConfig, out: Path | None = None) -> Certificate:
    """Certify and write the run folder; a finished run with the same settings and texts is left as it is."""
    given = (config.section, config.split, config.unit, config.allow_missing, config.columns, config.by_row)
    inputs = _load(config.predictions, config.references, *given)
    inputs, remark = _add_controls(inputs, config.controls)
    if out is not None and finished(out, config, seed=config.seed):
        stored = Certificate.from_json(read_json(out / CERTIFICATE))
        digest = _Examination(inputs, config.references, config.training, config.section, remark, None, 1, 0.95, 0).digest
        if config.model is None and stored.digest != digest:
            raise RunError(f"{out} certifies other texts under the same paths; choose another folder with --out.")
        return stored
    with ExitStack() as stack:
        run = None if out is None else stack.enter_context(Run.open(out, config, seed=config.seed))
        if config.model is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if run is None else run.folder
            generated = _generate_with_controls(config, inputs, folder / "model")
            inputs, remark = _add_controls(inputs, [generated])
        found = _Examination(
            inputs,
            config.references,
            config.training,
            config.section,
            remark,
            config.metrics or None,
            config.trials,
            config.level,
            config.seed,
        )
        certificate = found.certificate
        if run is not None:
            run.write(EVIDENCE, "".join(dumps(line) + "\n" for line in found.evidence()))
            write_sheet(run, found.sheet)
            run.write(CERTIFICATE, certificate.to_json())
    return certificate


def _load(
    predictions: Texts,
    references: Texts | None,
    section: str,
    split: str | None,
    unit: Unit,
    allow_missing: bool,
    columns: Sequence[str],
    by_row: bool,
) -> Inputs:
    """Matched pairs; what does not match is listed, not refused."""
    both = (predictions, None) if references is None else (references, predictions)
    return load_inputs(
        *both,
        section=section,
        split=split,
        unit=unit,
        allow_missing=allow_missing,
        columns=columns,
        by_row=by_row,
        matched_only=True,
    )


def _generate_with_controls(config: CertifyConfig, inputs: Inputs, out: Path) -> Path:
    """A run of `generate` for some studies of the corpus, with control images."""
    assert config.model is not None and config.references is not None
    if not (config.references / STUDIES).is_file():
        raise ConfigError(f"--model generates from images, and {config.references} is no corpus folder.")
    corpus, keys = load_corpus(config.references), {pair.id for pair in inputs.pairs}
    splits = sorted({study.split for study in corpus.studies() if study.id in keys and study.split})
    if len(splits) != 1:
        raise ConfigError(f"the predictions are of the splits {', '.join(splits) or 'none'}; choose one with --split.")
    settings = GenerateConfig(
        config.model,
        config.references,
        split=splits[0],
        n=config.control_studies,
        seed=config.seed,
        examples=0,
        control_studies=config.control_studies,
        decoding=config.decoding,
        loading=config.loading,
    )
    generate(settings, out)
    return out


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


@dataclass
class _Examination:
    """Every check of one file, with what several of them share."""

    inputs: Inputs
    references: Texts | None
    training: Texts | None
    section: str
    control_remark: str
    metrics: Sequence[str] | None
    trials: int
    level: float
    seed: int

    @cached_property
    def certificate(self) -> Certificate:
        """The verdict and the checks."""
        checks, facts = self._check_all()
        rule, headline = decide(facts)
        return Certificate(rule.name, rule.severity, headline, checks, facts.n, facts.patients, self.digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of every input text."""
        parts = (self.inputs.digest, self.inputs.extra, self.inputs.missing, self._library)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def sheet(self) -> ScoreSheet:
        """The scores, as `score` writes them."""
        names = dict.fromkeys([*(self.metrics or default_names()), *CLINICAL, *LEXICAL])
        return score_inputs(self.inputs, list(names), trials=self.trials, level=self.level, seed=self.seed)

    def _check_all(self) -> tuple[tuple[Check, ...], Facts]:
        inputs, batch = self.inputs, self._batch
        untested: list[str] = []
        varied = self._variety()
        content = self._content()
        gains, fit = self._floors()
        wording = [name for name in LEXICAL if gains["constant"][name].low > 0]
        copies = self._own_references()
        overlap = self._training_overlap()
        dependence = self.sheet.image_dependence
        if overlap.verdict == "not tested":
            untested.append("overlap with training reports (--training)")
        if dependence is None:
            untested.append("image dependence (--controls or --model)")
        sets = [frozenset((f.observation, f.side) for f in found if f.present) for found in batch.candidate_findings]
        copied = overlap.numbers
        checks = (
            self._matching(),
            varied,
            content,
            *fit,
            self._prevalence(),
            copies,
            overlap,
            self._image_check(),
            self._size_check(),
        )
        facts = Facts(
            n=len(batch),
            patients=self._resamples.clusters.count,
            predictions=len(batch) + len(inputs.extra),
            references=len(batch) + len(inputs.missing),
            extra=len(inputs.extra),
            missing=len(inputs.missing),
            distinct=varied.numbers["reports"]["distinct"],
            repeated=varied.numbers["most_frequent"]["predictions"],
            repeated_gap=varied.numbers["most_frequent"]["difference"],
            abnormal=int(np.nansum(1 - self._normal(sets_of=batch.candidate_findings, texts=batch.candidates))),
            abnormal_references=int(
                np.nansum(1 - self._normal(sets_of=batch.reference_findings, texts=batch.references, references=True))
            ),
            normal_gap=content.numbers["normal"]["difference"],
            same=varied.numbers["most_frequent_findings"]["predictions"],
            same_gap=varied.numbers["most_frequent_findings"]["difference"],
            compared=copies.numbers["compared"],
            own=copies.numbers["own_reference"],
            own_gap=copies.numbers["difference"],
            value=self._tally("", DECIDING).value,
            dealt=self._tally("dealt", DECIDING).value if self._deals else float("nan"),
            gain=gains["dealt"][DECIDING] if self._deals else None,
            wording=tuple(wording),
            errors_gap=_negative(gains["constant"]["errors.significant"]),
            copied=copied.get("verbatim", {}).get("predictions"),
            copied_references=copied.get("verbatim", {}).get("references"),
            copied_gap=copied.get("verbatim", {}).get("difference"),
            image=None if dependence is None else dependence.verdict,
            image_sentence="" if dependence is None else dependence.sentence,
            untested=tuple(untested),
        )
        return checks, facts

    # What the checks share ------------------------------------------------------------------------------------------

    @cached_property
    def _batch(self) -> Batch:
        return self.sheet.batch

    @cached_property
    def _known(self) -> NDArray[np.bool_]:
        """Pairs whose reference has words."""
        return np.array([not wordless(text) for text in self._batch.references])

    @cached_property
    def _patients(self) -> list[str]:
        return [pair.patient or pair.id for pair in self._batch.pairs]

    @cached_property
    def _resamples(self) -> Resamples:
        return Resamples(self._patients, trials=self.trials, rng=generator(self.seed, "certify", "intervals"))

    @cached_property
    def _deals(self) -> list[list[int]]:
        """Ways to give each patient's studies the reports of others; none where one patient has most studies."""
        ids = [pair.id for pair in self._batch.pairs]
        found = [
            pair_with_other_patients(self._patients, ids, generator(self.seed, "certify", "deal", str(k)))
            for k in range(DEALS)
        ]
        return [deal for deal in found if deal is not None and len(ids) > 1]

    @cached_property
    def _tallies(self) -> dict[str, dict[str, Tally]]:
        """Baseline → metric → counts; "" for the reports themselves."""
        batch = self._batch
        names = [*CLINICAL, *LEXICAL]
        found = {"": {tally.metric.name: tally for tally in self.sheet.tallies}}

        def count(candidates: Sequence[str]) -> dict[str, Tally]:
            other = batch.with_candidates(candidates)
            return {tally.metric.name: tally for family in families(names) for tally in family.tallies(other)}

        found["constant"] = count(constant_normal(batch, generator(self.seed)))
        if self._deals:
            dealt = [
                count([batch.candidates[place] for place in deal])
                for deal in track(self._deals, "dealing reports to other patients")
            ]
            # Values are ratios of sums, so that averaged counts give the value over all deals.
            found["dealt"] = {
                name: replace(one, rows=np.mean([deal[name].rows for deal in dealt], axis=0))
                for name, one in dealt[0].items()
            }
        if isinstance(texts := self._retrieved, list):
            found["retrieved"] = count(texts)
        return found

    def _tally(self, baseline: str, name: str) -> Tally:
        return self._tallies[baseline][name]

    def _share(self, flags: Flags, other: Flags | None = None) -> dict[str, Estimate] | Estimate:
        """The share of the reports, or with a second column that of both sides and their paired difference."""
        columns = [flags] if other is None else [flags, other]
        card = Metric("share", "higher", (0.0, 1.0), None, "")
        found = self._resamples.resample([mean_tally(card, column) for column in columns])
        if other is None:
            return found[0].estimate(self.level)
        return {
            "predictions": found[0].estimate(self.level),
            "references": found[1].estimate(self.level),
            "difference": found[0].minus(found[1]).estimate(self.level),
        }

    def _gaps(self, flags: Flags, other: Flags) -> dict[str, Estimate]:
        found = self._share(flags, other)
        assert isinstance(found, dict)
        return found

    def _gain(self, baseline: str, name: str) -> Estimate:
        """The metric of the reports minus that of a baseline, with the sign turned so that above 0 is better."""
        mine, other = self._tally("", name), self._tally(baseline, name)
        one, two = self._resamples.resample([mine, other])
        return (one.minus(two) if mine.metric.direction == "higher" else two.minus(one)).estimate(self.level)

    def _normal(
        self, *, sets_of: Sequence[Sequence[Finding]], texts: Sequence[str], references: bool = False
    ) -> Flags:
        """1 for a report that states nothing but devices and incidental findings, as CheXpert's No Finding does.

        A report without words is neither normal nor abnormal.
        """
        flags = []
        for pair, findings, text in zip(self._batch.pairs, sets_of, texts, strict=True):
            known = pair.answerable if references else pair.answerable and not wordless(text)
            normal = chexpert_labels(findings, complete=False).get(NORMAL) == 1
            flags.append(float(normal) if known else np.nan)
        return np.array(flags)

    # The checks -----------------------------------------------------------------------------------------------------

    def _matching(self) -> Check:
        inputs = self.inputs
        numbers = {
            "matched": len(inputs.pairs), "predictions": len(inputs.pairs) + len(inputs.extra),
            "references": len(inputs.pairs) + len(inputs.missing), "by": inputs.matching.get("by"),
            "extra": len(inputs.extra), "extra_examples": inputs.extra[:EXAMPLES],
            "missing": len(inputs.missing), "missing_examples": inputs.missing[:EXAMPLES],
            "missing_taken_as_empty": inputs.matching.get("missing", 0),
        }  # fmt: skip
        sentence = f"{numbers['matched']:,} of {numbers['predictions']:,} predictions matched by {numbers['by']}"
        sentence += "; no id repeats."
        for kind, what in (("extra", "predictions without a reference"), ("missing", "references without a prediction")):
            if numbers[kind]:
                sentence += f" {numbers[kind]:,} {what}, such as {', '.join(numbers[f'{kind}_examples'])}."
        verdict: Verdict = "fail" if inputs.extra or inputs.missing else "pass"
        return Check("matched ids", verdict, sentence, numbers)

    def _variety(self) -> Check:
        batch = self._batch
        sides = {"reports": batch.candidates, "references": batch.references}
        texts = {name: [" ".join(words(text)) for text in side] for name, side in sides.items()}
        numbers: dict[str, Any] = {}
        for name, side in texts.items():
            prefix = _shared_beginning([text.split() for text in side])
            numbers[name] = {"n": len(side), "distinct": len(set(side)), "shared_first_words": prefix}
        frequent = [_is_most_frequent(texts["reports"]), _is_most_frequent(texts["references"])]
        numbers["most_frequent"] = self._gaps(*frequent)
        sets = [
            _is_most_frequent([_stated(found) for found in side])
            for side in (batch.candidate_findings, batch.reference_findings)
        ]
        numbers["most_frequent_findings"] = self._gaps(*sets)
        mine, other = numbers["reports"], numbers["references"]
        same, same_text = numbers["most_frequent_findings"], numbers["most_frequent"]
        constant = mine["distinct"] == 1 < other["distinct"]
        alike = same["predictions"].value >= SAME_FINDINGS and same["difference"].low > 0
        repeated = same_text["difference"].low > 0 or mine["shared_first_words"] >= 5 > other["shared_first_words"]
        verdict: Verdict = "fail" if constant or alike else "note" if repeated else "pass"
        sentence = (
            f"{mine['distinct']:,} different reports ({other['distinct']:,} different references); the most frequent is "
            f"{same_text['predictions'].value:.1%} of the reports ({same_text['references'].value:.1%} of the "
            f"references). The most frequent findings are those of {same['predictions'].value:.1%} of the reports "
            f"({same['references'].value:.1%})."
        )
        if mine["shared_first_words"] >= 5 > other["shared_first_words"] and mine["distinct"] > 1:
            sentence += f" Nine in ten reports begin with the same {mine['shared_first_words']} words."
        return Check("variety", verdict, sentence, numbers)

    def _content(self) -> Check:
        batch = self._batch
        normal = self._gaps(
            self._normal(sets_of=batch.candidate_findings, texts=batch.candidates),
            self._normal(sets_of=batch.reference_findings, texts=batch.references, references=True),
        )
        numbers = {
            "normal": normal,
            "empty": self._gaps(*(self._flags(side, wordless) for side in (batch.candidates, batch.references))),
            "without_sentence_end": self._gaps(
                *(self._flags(side, _is_cut, spoken=True) for side in (batch.candidates, batch.references))
            ),
            "masks": self._gaps(
                *(self._flags(side, lambda text: bool(_MASK.search(text))) for side in (batch.candidates, batch.references))
            ),
        }
        gap = normal["difference"]
        sentence = (
            f"Normal: {normal['predictions'].value:.1%} of the reports, {normal['references'].value:.1%} of the references "
            f"(difference {_points(gap)})."
        )
        worse = []
        for key, what in (("empty", "without words"), ("without_sentence_end", "without the end of a sentence")):
            if numbers[key]["difference"].low > 0:
                worse.append(f"{numbers[key]['predictions'].value:.1%} {what}")
        if numbers["masks"]["predictions"].value > 0:
            worse.append(f"{numbers['masks']['predictions'].value:.1%} with masks (XXXX, ___)")
        sentence += f" Reports: {', '.join(worse)}." if worse else ""
        none = normal["predictions"].value == 1 and gap.low > 0
        verdict: Verdict = "fail" if none else "warning" if gap.low > 0.1 or gap.high < -0.1 or worse else "pass"
        return Check("content", verdict, sentence, numbers)

    def _flags(self, texts: Sequence[str], test: Any, *, spoken: bool = False) -> Flags:
        """1 where a text passes the test; with `spoken` a text without words has no value."""
        return np.array([np.nan if spoken and wordless(text) else float(test(text)) for text in texts])

    def _floors(self) -> tuple[dict[str, dict[str, Estimate]], list[Check]]:
        """The gain over each baseline by metric, and one check for each baseline."""
        titles = {
            "dealt": ("fit to the studies", "the same reports dealt to other patients"),
            "constant": ("better than a constant report", "one normal report for all"),
            "retrieved": ("better than retrieval", "the report of the most similar training image"),
        }
        gains: dict[str, dict[str, Estimate]] = {}
        checks = []
        for baseline, (title, what) in titles.items():
            if baseline not in self._tallies:
                why = self._retrieved if baseline == "retrieved" else "one patient has most of the studies."
                checks.append(Check(title, "not tested", f"Not tested: {why}", {}))
                continue
            gains[baseline] = {name: self._gain(baseline, name) for name in (*CLINICAL, *LEXICAL)}
            numbers = {
                name: {
                    "predictions": self._tally("", name).value,
                    "baseline": self._tally(baseline, name).value,
                    "direction": self._tally("", name).metric.direction,
                    "gain": gain,
                }
                for name, gain in gains[baseline].items()
            }
            deciding = gains[baseline][DECIDING]
            lexical = [name for name in LEXICAL if gains[baseline][name].low > 0]
            worse = [name for name in CLINICAL if gains[baseline][name].high < 0]
            sentence = (
                f"{DECIDING} {numbers[DECIDING]['predictions']:.3f} against {numbers[DECIDING]['baseline']:.3f} of {what}: "
                f"{deciding.value:+.3f} [{deciding.low:+.3f}, {deciding.high:+.3f}]."
            )
            if worse:
                sentence += f" Worse in {', '.join(worse)}."
            if lexical and deciding.low <= 0:
                sentence += f" Better only in {', '.join(lexical)}, which compare words."
            failed: Verdict = "fail" if baseline == "dealt" else "warning"
            verdict = failed if deciding.low <= 0 else "warning" if worse else "pass"
            checks.append(Check(title, verdict, sentence, numbers))
        return gains, checks

    @cached_property
    def _retrieved(self) -> list[str] | str:
        """The report of the most similar training image for each study, or why there is none."""
        paths = [Path(one) for one in (self.training, self.references) if isinstance(one, (str, os.PathLike))]
        if self.training is None:
            return "give the training corpus with --training."
        if len(paths) < 2 or not all((path / STUDIES).is_file() for path in paths):
            return "retrieval needs a corpus with images for both --training and --references."
        if not any(study.images for study in load_corpus(paths[0]).studies("train")):
            return f"the train split of {paths[0]} has no images."
        try:
            corpus = load_corpus(paths[1])
            model = open_model(f"retrieval:{paths[0]}", None, [corpus.egress_data])
            images = Images(corpus)
            found = []
            for pair in track(self._batch.pairs, "retrieving training reports"):
                study = pair.id if pair.id in corpus.ids() else pair.id.partition("#")[0]
                found.append(model.generate([images.image(study)])[0].text)
            return found
        except CxrlabError as error:
            return f"{error}"

    def _prevalence(self) -> Check:
        batch = self._batch
        known = np.array([pair.answerable for pair in batch.pairs])
        labels = [
            [chexpert_labels(found, complete=False) for found in side]
            for side in (batch.candidate_findings, batch.reference_findings)
        ]
        numbers: dict[str, Any] = {}
        for name in CHEXPERT_14:
            mine, other = (
                np.where(known, [float(one.get(name, 0) in (1, -1)) for one in side], np.nan) for side in labels
            )
            numbers[name] = {**self._gaps(mine, other), "count": int(np.nansum(mine)), "present": int(np.nansum(other))}
        never = [name for name, found in numbers.items() if not found["count"] and found["present"]]
        differ = sorted(
            (name for name, found in numbers.items() if found["difference"].low > 0 or found["difference"].high < 0),
            key=lambda name: -abs(numbers[name]["difference"].value),
        )
        sentence = f"Never reported though present in references: {', '.join(never) or 'none of the 14 labels'}."
        if differ:
            parts = [f"{name} {_points(numbers[name]['difference'])}" for name in differ[:EXAMPLES]]
            sentence += f" Largest differences: {', '.join(parts)}."
        common = [name for name in never if numbers[name]["present"] >= 5]
        verdict: Verdict = "warning" if common else "note" if never or differ else "pass"
        return Check("label prevalence", verdict, sentence, {"labels": numbers, "never_reported": never})

    @cached_property
    def _own(self) -> tuple[Flags, Flags]:
        """Whether each report is the text of its own reference, and how often it is that of those it is dealt to.

        Only references that state a finding and are unlike all others count where there are enough: common normal reports
        are met by chance.
        """
        batch = self._batch
        normal = self._normal(sets_of=batch.reference_findings, texts=batch.references, references=True)
        telling = self._known & (normal == 0) & (self._elsewhere[1] == 0)
        counted = telling if telling.sum() >= LEAST_TELLING else self._known
        texts = {text: _Phrases(text) for text in {*batch.candidates, *batch.references}}

        def alike(candidates: Iterable[str]) -> Flags:
            return np.array(
                [
                    float(texts[one].resembles(texts[two])) if known else np.nan
                    for one, two, known in zip(candidates, batch.references, counted, strict=True)
                ]
            )

        own = alike(batch.candidates)
        dealt = [alike([batch.candidates[place] for place in deal]) for deal in self._deals]
        return own, np.mean(dealt, axis=0) if dealt else np.full(len(batch), np.nan)

    @cached_property
    def _elsewhere(self) -> tuple[Flags, Flags]:
        """Whether each report, and each reference, is word for word the reference of another study."""
        batch = self._batch
        texts = [" ".join(words(text)) for text in batch.references]
        times = Counter(texts)
        mine = [" ".join(words(text)) for text in batch.candidates]
        pairs = zip(mine, texts, strict=True)
        other = [float(bool(one) and times[one] - (one == two) > 0) for one, two in pairs]
        return np.array(other), np.array([float(bool(text) and times[text] > 1) for text in texts])

    def _own_references(self) -> Check:
        own, dealt = self._own
        share = self._share(own)
        gap = self._gaps(own, dealt)["difference"] if self._deals else None
        elsewhere = self._gaps(*self._elsewhere)
        assert isinstance(share, Estimate)
        numbers = {"compared": int((~np.isnan(own)).sum()), "own_reference": share, "difference": gap, "other_reference": elsewhere}
        at_random = "" if gap is None else f", {share.value - gap.value:.1%} when dealt to other patients"
        sentence = (
            f"{share.value:.1%} of {numbers['compared']:,} compared reports are the text of their own reference{at_random}; "
            f"{elsewhere['predictions'].value:.1%} of all are the reference of another study word for word "
            f"({elsewhere['references'].value:.1%} of the references are)."
        )
        copied = gap is not None and gap.low > OWN_REFERENCE
        verdict: Verdict = "fail" if copied else "warning" if elsewhere["difference"].low > 0.2 else "pass"
        return Check("copied references", verdict, sentence, numbers)

    @cached_property
    def _library(self) -> tuple[str, ...]:
        """The training reports; none where none are given."""
        if self.training is None:
            return ()
        source = read_references(self.training, self.section)
        splits = {reference.split for reference in source.items.values()}
        wanted = [one for one in source.items.values() if "train" not in splits or one.split == "train"]
        texts = tuple(one.text for one in wanted if one.text and not wordless(one.text))
        if not texts:
            raise DataError(f"{source.name} holds no report text to compare with; check --training and --section.")
        return texts

    @cached_property
    def _closeness(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest share of phrases in common with a training report, for reports and references."""
        return closest(self._batch.candidates, self._library), closest(self._batch.references, self._library)

    def _training_overlap(self) -> Check:
        if not self._library:
            return Check("overlap with training reports", "not tested", "Not tested: give them with --training.", {})
        mine, other = self._closeness
        numbers = {
            "training_reports": len(self._library),
            "verbatim": self._gaps((mine == 1).astype(float), (other == 1).astype(float)),
            "near": self._gaps((mine >= NEAR_SHARE).astype(float), (other >= NEAR_SHARE).astype(float)),
        }
        verbatim, near = numbers["verbatim"], numbers["near"]
        sentence = (
            f"Of the reports {verbatim['predictions'].value:.1%} are one of {len(self._library):,} training reports word "
            f"for word and {near['predictions'].value:.1%} nearly; of the references {verbatim['references'].value:.1%} "
            f"and {near['references'].value:.1%}."
        )
        verdict: Verdict = "warning" if verbatim["difference"].low > 0.1 or near["difference"].low > 0.1 else "pass"
        if verbatim["references"].value >= 0.9:
            verdict, sentence = "warning", f"{sentence} Nearly all references are among them: these are no test studies."
        return Check("overlap with training reports", verdict, sentence, numbers)

    def _image_check(self) -> Check:
        found = self.sheet.image_dependence
        if found is None:
            why = self.control_remark or "give a run with control images (--controls), or the model (--model)"
            verdict: Verdict = "warning" if self.control_remark else "not tested"
            return Check("image dependence", verdict, f"Not tested: {why}.", {})
        verdicts: Mapping[str, Verdict] = {"looks": "pass", "blind": "fail", "unclear": "warning"}
        return Check("image dependence", verdicts[found.verdict], found.sentence, found.to_json())

    def _size_check(self) -> Check:
        count = self._resamples.clusters.count
        numbers = {"studies": len(self._batch), "patients": count, "minimum_patients": MINIMUM_PATIENTS}
        if count >= MINIMUM_PATIENTS:
            return Check("sample size", "pass", f"{len(self._batch):,} studies of {count:,} patients.", numbers)
        sentence = f"Fewer than {MINIMUM_PATIENTS} patients ({count}): intervals are too narrow."
        return Check("sample size", "warning", sentence, numbers)

    def evidence(self) -> list[dict[str, Any]]:
        """One record for each study; ids and flags, no text."""
        batch, (own, _), (elsewhere, _) = self._batch, self._own, self._elsewhere
        normal = self._normal(sets_of=batch.candidate_findings, texts=batch.candidates)
        expected = self._normal(sets_of=batch.reference_findings, texts=batch.references, references=True)
        numbers = Counter(" ".join(words(text)) for text in batch.candidates)
        training = self._closeness[0] if self._library else np.full(len(batch), np.nan)
        return [
            {
                "id": pair.id,
                "same_text": numbers[" ".join(words(text))],
                "normal": plain(normal[k]),
                "reference_normal": plain(expected[k]),
                "own_reference": plain(own[k]),
                "other_reference": plain(elsewhere[k]),
                "closest_training_report": plain(training[k]),
                "without_sentence_end": not wordless(text) and _is_cut(text),
                "masks": bool(_MASK.search(text)),
            }
            for k, (pair, text) in enumerate(zip(batch.pairs, batch.candidates, strict=True))
        ]


class _Phrases:
    """The words of a text and its three-word phrases."""

    def __init__(self, text: str) -> None:
        self.words = words(text)
        self.phrases = frozenset(zip(*(self.words[k:] for k in range(PHRASE)), strict=False))

    def resembles(self, other: _Phrases) -> bool:
        """Whether both have the same words, or most phrases of the shorter are in the longer."""
        if not self.words or not other.words:
            return False
        if self.words == other.words:
            return True
        least = min(len(self.phrases), len(other.phrases))
        return least >= LEAST_PHRASES and len(self.phrases & other.phrases) >= NEAR_SHARE * least


def _stated(findings: Iterable[Finding]) -> frozenset[tuple[Any, ...]]:
    """Observations that are present, with their side."""
    return frozenset((finding.observation, finding.side) for finding in findings if finding.present)


def _is_most_frequent(items: Sequence[Any]) -> Flags:
    """1 for the items that equal the most frequent one."""
    (item, _), *_ = Counter(items).most_common(1)
    return np.array([float(one == item) for one in items])


def _shared_beginning(texts: Sequence[Sequence[str]]) -> int:
    """The most first words that nine in ten texts share."""
    length, kept = 0, list(texts)
    while kept:
        nexts = Counter(text[length] for text in kept if len(text) > length)
        if not nexts:
            break
        word, count = nexts.most_common(1)[0]
        if count < 0.9 * len(texts):
            break
        kept = [text for text in kept if len(text) > length and text[length] == word]
        length += 1
    return length


def _is_cut(text: str) -> bool:
    return not _SENTENCE_END.search(text)


def _negative(found: Estimate) -> Estimate:
    return replace(found, value=-found.value, low=-found.high, high=-found.low)


def _points(found: Estimate) -> str:
    return f"{found.value:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
