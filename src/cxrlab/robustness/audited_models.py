"""Models under audit: loading them, what they return for images, and the objectives of attacks on them.

AuditedTextModel       any model that returns only text; only black-box attacks are possible
AuditedReportModel     open weights that generate reports and answer closed questions
AuditedDefendedModel   the same behind an input transformation, which attacks differentiate through
AuditedSmoothedModel   the same with closed answers by a vote over noisy copies of the image
AuditedEncoder         a contrastive encoder: zero-shot classes, no reports
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cxrlab.attacks.input_transformations import BehindTransformation, InputTransformation, draws_by_pixels
from cxrlab.attacks.objectives import (
    ChangeFinding,
    LowerReportLoss,
    MoveEmbedding,
    Objective,
    RaiseReportLoss,
    ReportHarm,
    WhereApplicable,
    WrongAnswers,
    present_observations,
)
from cxrlab.core.egress import (
    MIN_PERMISSION_WORDS,
    EgressData,
    hide_credentials,
    is_address,
    is_loopback,
    is_valid_permission,
)
from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import StudyContext
from cxrlab.core.terminal import NoticeStream
from cxrlab.evaluation.generate import ReportGenerator, caution_context, check_context
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.retrieve import load_sentences, mean_direction
from cxrlab.findings.reader import read
from cxrlab.models.hf.gradient_memory import GradientMemory, checkpoint_layers, estimate_gradient
from cxrlab.models.hf.model import HfModel
from cxrlab.models.local_files import locate
from cxrlab.models.model_registry import load_encoder
from cxrlab.robustness.audit_records import ImageAnswer
from cxrlab.robustness.audited_studies import Case, Label, labels_in
from cxrlab.robustness.config import (
    ANSWERS,
    EMBEDDING,
    REMOVE,
    REPORT,
    TARGET,
    TARGETED_AIMS,
    AttackGoals,
    parse_defended,
    parse_smoothed,
    undefended,
)
from cxrlab.robustness.encoder_features import is_encoder_folder
from cxrlab.robustness.smoothing import Smoothing, over_copies

if TYPE_CHECKING:
    from cxrlab.attacks.objectives import GenerateReports
    from cxrlab.core.model_interfaces import Contexts, Generated
    from cxrlab.models.decoding import Decoding
    from cxrlab.models.dual_encoder import DualEncoder
    from cxrlab.models.load_settings import LoadSettings
    from cxrlab.robustness.config import RobustnessConfig

Result = TypeVar("Result")

_CACHED = 16_384  # results per model; a black-box attack looks at hundreds of changes of every image


def load_audited_model(
    key: str,
    name: str,
    labels: Sequence[Label],
    settings: RobustnessConfig,
    *,
    egress: Sequence[EgressData] = (),
    sentences: str = "report/1",
) -> AuditedModel:
    """Load the model of this name for an audit.

    Args:
        key: Its key in the evidence: a, b, …
        name: As the user wrote it: a report model, a contrastive encoder, smoothed:SIGMA:MODEL, or
            defended:TRANSFORMATION:STRENGTH:MODEL.
        egress: Data that it will get; required for an address that is not on this machine.
        sentences: Wording of the zero-shot classes.
    """
    smoothed, behind, inner = parse_smoothed(name), parse_defended(name), undefended(name)
    if is_encoder(inner, settings.loading):
        if inner != name:
            does = "smooths" if smoothed else "defends"
            raise ConfigError(f"'{name}' {does} an encoder; only report models can be smoothed or defended.")
        if not settings.is_single:
            raise ConfigError(f"'{name}' is an encoder, which takes one image; leave out --views and --prior.")
        return AuditedEncoder(key, name, labels, load_encoder(name, settings.loading), sentences)
    if is_address(inner):
        _check_permission(name, settings, remote=not is_loopback(inner))  # before anything connects
    model = open_model(inner, settings.loading, egress)
    check_context(model, settings.context)
    if caution := caution_context(model.name, getattr(model, "card", None), settings.context):
        NoticeStream(sys.stderr).write(f"caution: {caution}\n")
    if not is_address(inner):
        _check_permission(name, settings, remote=model.capabilities.black_box)
    if smoothed:
        if not isinstance(model, HfModel):
            raise ConfigError(f"'{name}' cannot be smoothed: {inner} answers no closed questions; name open weights.")
        if not all(label.questions for label in labels):
            raise ConfigError(f"'{name}' votes on closed questions and none is asked; leave out --questions none.")
        return AuditedSmoothedModel(key, name, labels, model, settings, sigma=smoothed[0])
    if behind:
        if not isinstance(model, HfModel):
            raise ConfigError(f"'{name}' cannot be attacked through its transformation: {inner} is no model with open "
                              "weights.")  # fmt: skip
        return AuditedDefendedModel(key, name, labels, model, settings, behind[0])
    if isinstance(model, HfModel):
        return AuditedReportModel(key, name, labels, model, settings.decoding, settings.against, settings.goals)
    return AuditedTextModel(key, name, labels, model, settings.decoding)


def _check_permission(name: str, settings: RobustnessConfig, *, remote: bool) -> None:
    if remote and not is_valid_permission(settings.i_am_authorised):
        raise ConfigError(
            f"'{hide_credentials(name)}' runs elsewhere, and an audit of it needs its owner's permission. Give "
            f'--i-am-authorised "WHO AND WHY" (at least {MIN_PERMISSION_WORDS} words); it is kept and shown on the page.'
        )


def is_encoder(name: str, loading: LoadSettings) -> bool:
    """Whether a name stands for a contrastive encoder: the built-in one, or a folder whose config.json says so."""
    kind, _, argument = name.partition(":")
    return is_encoder_folder(locate(argument, loading)) if kind == "hf" else name == "builtin:encoder"


class AuditedModel(ABC):
    """One model under audit.

    Attributes:
        key: Its key in the evidence: a, b, …
        name: As the user wrote it.
        labels: The labels that it is asked about.
        gradients: Whether objectives have gradients.
        scores: Whether objectives use more than the generated text.
        aims: Attack goals that are possible.
        smoothing: How it votes on closed answers; None for a model that does not.
        device: Where images have to be.
    """

    gradients = True
    scores = True
    generates_reports = True
    aims: tuple[str, ...] = ()
    smoothing: Smoothing | None = None
    device: torch.device = torch.device("cpu")

    def __init__(self, key: str, name: str, labels: Sequence[Label]) -> None:
        self.key, self.name, self.labels = key, name, tuple(labels)

    def clear_cache(self) -> None:  # noqa: B027 - most have no cache
        """Drop cached results, so that images are examined anew."""

    def gradient_memory(self, aim: str, cases: Sequence[Case], size: tuple[int, int]) -> GradientMemory | None:
        """Estimated memory of the gradient of an aim for one image of this height and width; None where unknown."""
        return None

    def checkpoint_layers(self, on: bool) -> None:  # noqa: B027 - most have no layers
        """Keep the inputs of each layer alone from the forward to the backward pass, or all activations."""

    def probabilities(self, images: Tensor, cases: Sequence[Case]) -> Tensor | None:
        """P(present) of every label, [B, labels]; None where the model answers no questions."""
        return None

    @abstractmethod
    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """What the model returns for images [B, C, H, W] float32 in [0, 1] of these studies."""

    @abstractmethod
    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """The objective of an attack.

        Args:
            aim: One of `aims`.
            clean: Answers to the clean images.
            images: The clean images.
        """

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Harm read from generated text, for attacks that use nothing else."""
        raise ConfigError(f"'{self.name}' generates no reports; leave out attacks by report.")


class AuditedTextModel(AuditedModel):
    """A model that returns only text."""

    gradients = False
    scores = False
    aims: tuple[str, ...] = (REPORT,)

    def __init__(self, key: str, name: str, labels: Sequence[Label], model: Any, decoding: Decoding) -> None:
        super().__init__(key, name, labels)
        self.model = model
        self._generator = ReportGenerator(model, decoding)
        self._cache: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def clear_cache(self) -> None:
        """Drop cached results."""
        self._cache = {}

    def once(
        self, names: Sequence[str], images: Tensor, compute: Callable[[list[int]], Sequence[Result]]
    ) -> list[Result]:
        """One result per image; the same result of the same image is computed once until the cache is cleared.

        An attack and what examines its images need many of them: loss and success of the last image are part of its
        answer.

        Args:
            names: What is computed for each image, with everything besides the pixels that it depends on.
            compute: Results for the images at these positions.
        """
        # With the shape: a blank image of 40 × 30 pixels has the bytes of one of 30 × 40.
        shape = tuple(images.shape[1:])
        hashes = [blake2b(image.detach().cpu().numpy().tobytes(), digest_size=16).digest() for image in images]
        keys = [(name, shape, digest) for name, digest in zip(names, hashes, strict=True)]
        new = {key: place for place, key in enumerate(keys) if key not in self._cache}
        if new:
            self._cache |= dict(zip(new, compute(list(new.values())), strict=True))
        for key in keys:
            self._cache[key] = self._cache.pop(key)  # the last used are last
        found = [self._cache[key] for key in keys]
        for key in list(self._cache)[: max(len(self._cache) - _CACHED, 0)]:
            del self._cache[key]
        return found

    def generate(self, images: Tensor, cases: Sequence[Case]) -> list[Generated]:
        """One report per image."""

        def compute(places: list[int]) -> list[Generated]:
            arrays = [images[place].detach().cpu().numpy() for place in places]
            arrays = [array[0] if len(array) == 1 else array.transpose(1, 2, 0) for array in arrays]
            answers = self._generator.generate(arrays, [cases[place].indication for place in places])
            return [several[0] for several in answers]

        return self.once([f"report of {case.id}" for case in cases], images, compute)

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Reports, and the labels that they state."""
        return [self._answer(generated) for generated in self.generate(images, cases)]

    def _answer(
        self, generated: Generated, loss: float | None = None, probs: dict[str, float] | None = None,
        outside: float | None = None,
    ) -> ImageAnswer:  # fmt: skip
        if generated.refused:
            return ImageAnswer(loss=loss, label_probs=probs or {}, outside=outside, refused=True)
        return ImageAnswer(
            report=generated.text,
            mean_logprob=generated.mean_logprob,
            tokens=generated.tokens,
            loss=loss,
            label_probs=probs or {},
            outside=outside,
            labels=labels_in(read(generated.text).findings, self.labels),
        )

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """Harm read from the reports."""
        return self.text_objective(cases, clean)

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Findings missed and invented; where the truth is unknown, findings that the clean report does not have."""
        before = [answer.report or "" for answer in clean]
        truths = []
        for case, text in zip(cases, before, strict=True):
            if case.findings is not None:
                truths.append(frozenset(finding.observation for finding in case.findings if finding.present))
            else:
                truths.append(present_observations(text if case.reference is None else case.reference))
        return ReportHarm(truths, before, self._generate_changed(cases, clean))

    def _generate_changed(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> GenerateReports:
        """Reports of changed images, in which a refusal counts as no success.

        A refusal is replaced by the report of the clean image, as is every report where the clean image was refused:
        then there is nothing to compare with.
        """

        def generate(images: Tensor, rows: Sequence[int]) -> list[str]:
            generated = self.generate(images, [cases[row] for row in rows])
            return [
                clean[row].report or "" if one.refused or clean[row].refused else one.text
                for one, row in zip(generated, rows, strict=True)
            ]

        return generate


class AuditedReportModel(AuditedTextModel):
    """Open weights: reports, their loss, and closed answers.

    Args:
        against: reference or own: the report whose loss an attack raises.
        goals: Target report and findings of the aims target, remove and invent.
    """

    gradients = True
    scores = True

    def __init__(
        self, key: str, name: str, labels: Sequence[Label], model: HfModel, decoding: Decoding, against: str,
        goals: AttackGoals,
    ) -> None:  # fmt: skip
        super().__init__(key, name, labels, model, decoding)
        self.gradients, self.device = model.capabilities.gradients, model.device
        self.against, self.goals = against, goals
        self._asks = bool(self.labels) and all(label.questions for label in self.labels)
        self.aims = tuple(aim for aim in (REPORT, ANSWERS, *TARGETED_AIMS) if aim != ANSWERS or self._asks)

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Reports, the loss of the references, and P(yes) of every label."""
        generated = self.generate(images, cases)
        losses: list[float | None] = [None] * len(cases)
        probs: list[dict[str, float]] = [{} for _ in cases]
        outside: list[float | None] = [None] * len(cases)
        with torch.no_grad():
            if known := [place for place, case in enumerate(cases) if case.reference]:
                references = [cases[place].reference or "" for place in known]
                values = self.losses(images[known], references, [cases[place].indication for place in known])
                for place, value in zip(known, values.double().cpu().tolist(), strict=True):
                    losses[place] = value
            if self._asks:
                probs = probabilities_by_label(self.labels, self.probabilities(images, cases))
                if isinstance(self.model, HfModel):
                    outside = [float(rest) for _, rest in self._answers(images)]
        return [self._answer(*one) for one in zip(generated, losses, probs, outside, strict=True)]

    def probabilities(self, images: Tensor, cases: Sequence[Case]) -> Tensor:
        """P(yes), [B, labels]."""
        return torch.sigmoid(self.margins(images, range(len(images))))

    @property
    def attacked_model(self) -> Any:
        """The model that attacks differentiate, with `losses` and `losses_of_each`."""
        return self

    def losses_of_each(self, images: Tensor, reports: Sequence[Sequence[str]], indications: Contexts) -> list[Tensor]:
        """As `losses` for several lists of reports about the same images."""
        found: list[Tensor] = self.model.losses_of_each(images, reports, indications)
        return found

    def losses(self, images: Tensor, reports: Sequence[str], indications: Contexts) -> Tensor:
        """[B], mean negative log-likelihood per token of each report; differentiable."""

        def compute(places: Sequence[int]) -> Tensor:
            found: Tensor = self.model.losses(
                images[list(places)], [reports[place] for place in places], [indications[place] for place in places]
            )
            return found

        if torch.is_grad_enabled() and images.requires_grad:
            return compute(range(len(images)))
        # Contexts that state the same may have other further images.
        given = [f"context {id(one)}" if isinstance(one, StudyContext) else repr(one) for one in indications]
        names = [f"loss of {report!r} given {one}" for report, one in zip(reports, given, strict=True)]
        return torch.stack(self.once(names, images, lambda places: list(compute(places))))

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels], log p(yes) - log p(no); of a label with several questions the largest."""
        if torch.is_grad_enabled() and images.requires_grad:
            return self._margins(images)
        return torch.stack([margins for margins, _ in self._answers(images)])

    def _answers(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each image its margins [labels], and the mean probability of answers that are neither yes nor no.

        The latter is not-a-number where the model does not report it.
        """

        def compute(places: list[int]) -> list[tuple[Tensor, Tensor]]:
            if not isinstance(self.model, HfModel):
                return [(margins, torch.tensor(math.nan)) for margins in self._margins(images[places])]
            margins, rest = self.model.yes_margins_and_rest(images[places], self._questions)
            return list(zip(self._of_labels(margins), rest.mean(dim=1), strict=True))

        return self.once(["answers"] * len(images), images, compute)

    def _margins(self, images: Tensor) -> Tensor:
        return self._of_labels(self.model.yes_margins_of_each(images, self._questions))

    @property
    def _questions(self) -> list[str]:
        return [question for label in self.labels for question in label.questions]

    def _of_labels(self, asked: Tensor) -> Tensor:
        """From one margin per question, [B, questions], to the largest of each label, [B, labels]."""
        of_labels = torch.split(asked, [len(label.questions) for label in self.labels], dim=1)
        return torch.stack([several.amax(dim=1) for several in of_labels], dim=1)

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """The true report unlikely, the closed answers wrong, or another report likely."""
        before = [answer.report or "" for answer in clean]
        indications = [case.indication for case in cases]
        generate = self._generate_changed(cases, clean)
        objective: Objective
        if aim == ANSWERS:
            objective = self.answer_objective(cases, clean)
        elif aim in TARGETED_AIMS:
            objective = targeted_objective(self.goals, aim, self.attacked_model, before, indications, generate)
        else:
            reports = before if self.against == "own" else [case.reference or "" for case in cases]
            objective = RaiseReportLoss(self.attacked_model, reports, indications, before, generate)
        objective.gradients = self.gradients
        return objective

    def answer_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Closed answers wrong."""
        return WrongAnswers(self.margins, truth_table(cases, self.labels), count_wrong_answers(cases, clean))

    def gradient_memory(self, aim: str, cases: Sequence[Case], size: tuple[int, int]) -> GradientMemory | None:
        """By the longest prompt and report of the studies, or the longest question."""
        if not isinstance(self.model, HfModel):
            return None
        self.model.free_generation_cache()  # the memory that is free is measured next
        report = self.model.report_length
        if aim == ANSWERS:
            lengths = self.model.question_lengths(self._questions, size)
            return estimate_gradient(self.model, size, lengths, 2 * len(lengths))
        prompt = max(self.model.prompt_length(case.indication, size) for case in cases)
        images = max(1 + _further_images(case) for case in cases)
        if aim == REPORT and self.against == "reference":
            answer = max(report(case.reference or "") for case in cases)
        else:
            answer = max(report(self.goals.report), self._generator.decoding.max_new_tokens)
        texts = 1 if aim in (REPORT, TARGET) else 2
        return estimate_gradient(self.model, size, [prompt + answer] * texts, answer * texts, images)

    def checkpoint_layers(self, on: bool) -> None:
        """Those of the vision encoder and of the language model."""
        if isinstance(self.model, HfModel):
            checkpoint_layers(self.model.model, on)


def _further_images(case: Case) -> int:
    return len(case.indication.further_images) if isinstance(case.indication, StudyContext) else 0


class AuditedDefendedModel(AuditedReportModel):
    """A report model behind an input transformation.

    What it returns for an image is for one draw, decided by the audit's seed and the pixels. Attacks know the
    transformation, but not its draws: they follow the mean over draws of their own.
    """

    def __init__(
        self, key: str, name: str, labels: Sequence[Label], model: HfModel, config: RobustnessConfig,
        transformation: InputTransformation,
    ) -> None:  # fmt: skip
        super().__init__(key, name, labels, model, config.decoding, config.against, config.goals)
        self.transformation, self._seed = transformation, config.seed
        self._draws = config.eot_draws if transformation.random else 1
        self._attacked = BehindTransformation(model, transformation, self._draws, config.seed)

    @property
    def attacked_model(self) -> BehindTransformation:
        """The model behind draws of the attacker."""
        return self._attacked

    def transformed(self, images: Tensor) -> Tensor:
        """The images as the model gets them."""
        with torch.no_grad():
            return self.transformation(images, draws_by_pixels(images, self._seed, "defence"))

    def generate(self, images: Tensor, cases: Sequence[Case]) -> list[Generated]:
        """One report per image."""
        return super().generate(self.transformed(images), cases)

    def losses(self, images: Tensor, reports: Sequence[str], indications: Contexts) -> Tensor:
        """[B], mean negative log-likelihood per token of each report; attacks use those of `attacked_model`."""
        return super().losses(self.transformed(images), reports, indications)

    def _answers(self, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        return super()._answers(self.transformed(images))

    def gradient_memory(self, aim: str, cases: Sequence[Case], size: tuple[int, int]) -> GradientMemory | None:
        """An attack follows several draws of each image."""
        one = super().gradient_memory(aim, cases, size)
        return one.times(self._draws) if one is not None else one

    def answer_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Answers wrong; the attack follows the mean probability over draws."""

        def expected(images: Tensor, rows: Sequence[int]) -> Tensor:
            return margins_of_mean(self._attacked.expected(self._margins, images), dim=0)

        return WrongAnswers(expected, truth_table(cases, self.labels), count_wrong_answers(cases, clean), self.margins)


def margins_of_mean(margins: Tensor, dim: int) -> Tensor:
    """Log of the mean probability of yes minus that of no, over a dimension of margins; differentiable."""
    return torch.logsumexp(logsigmoid(margins), dim=dim) - torch.logsumexp(logsigmoid(-margins), dim=dim)


class AuditedSmoothedModel(AuditedReportModel):
    """A report model whose closed answers are votes over noisy copies of the image, see `smoothing`.

    Reports and their losses are the model's own. The attacker knows the defence and even its noise, and follows the
    mean answer to the first copies; that is a little more than anyone can know. An image has the same noise before and
    after an attack: the id of its study decides it.
    """

    def __init__(
        self, key: str, name: str, labels: Sequence[Label], model: HfModel, config: RobustnessConfig, sigma: float
    ) -> None:
        super().__init__(key, name, labels, model, config.decoding, config.against, config.goals)
        votes = config.smoothing
        self.smoothing: Smoothing = Smoothing(sigma, votes.copies, votes.alpha, config.seed, votes.batch_size)
        self.attack_copies = votes.attack_copies

    def probabilities(self, images: Tensor, cases: Sequence[Case]) -> Tensor:
        """Share of the copies that are answered by yes, [B, labels]."""
        return self.shares(images, [case.id for case in cases])

    def shares(self, images: Tensor, keys: Sequence[str]) -> Tensor:
        """[B, labels], share of the copies of each image that are answered by yes; `keys` are names of the images."""

        def compute(places: list[int]) -> list[Tensor]:
            some = [keys[place] for place in places]
            with torch.no_grad():
                margins = over_copies(self._margins, images[places], some, self.smoothing.n, self.smoothing)
            return list((margins > 0).double().mean(dim=1))

        return torch.stack(self.once([f"votes of {key}" for key in keys], images, compute))

    def gradient_memory(self, aim: str, cases: Sequence[Case], size: tuple[int, int]) -> GradientMemory | None:
        """An attack on answers follows several copies of each image."""
        one = super().gradient_memory(aim, cases, size)
        return one.times(self.attack_copies) if one is not None and aim == ANSWERS else one

    def expected_margins(self, images: Tensor, keys: Sequence[str]) -> Tensor:
        """[B, labels], log of the mean probability of yes minus that of no over the first copies; differentiable.

        The vote itself has no gradient; this is above 0 where the copies on average say yes.
        """
        return margins_of_mean(over_copies(self._margins, images, keys, self.attack_copies, self.smoothing), dim=1)

    def answer_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Votes wrong; the attack follows the expected margins."""

        def expected(images: Tensor, rows: Sequence[int]) -> Tensor:
            return self.expected_margins(images, [cases[row].id for row in rows])

        def voted(images: Tensor, rows: Sequence[int]) -> Tensor:
            return self.shares(images, [cases[row].id for row in rows]) - 0.5

        return WrongAnswers(expected, truth_table(cases, self.labels), count_wrong_answers(cases, clean), voted)


class AuditedEncoder(AuditedModel):
    """A contrastive encoder: is an image nearer to presence or to absence?

    Args:
        sentences: Wording of the zero-shot classes.
    """

    generates_reports = False
    aims = (ANSWERS, EMBEDDING)

    def __init__(self, key: str, name: str, labels: Sequence[Label], encoder: DualEncoder, sentences: str) -> None:
        super().__init__(key, name, labels)
        self.encoder, self.device = encoder, encoder.device
        encoder.model.requires_grad_(False)
        self.gradients = encoder.pixels.differentiable
        wording = load_sentences(sentences)
        self._directions = []  # [names, D] for each label: from absence to presence of each of its names
        for label in self.labels:
            rows = []
            for text in label.sentences:
                present, absent = (mean_direction(encoder.embed_texts(side)) for side in wording.of(text))
                rows.append(torch.from_numpy(present - absent).float())
            self._directions.append(torch.stack(rows).to(self.device))

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Probability of every label: the logistic of the scaled difference of cosines."""
        with torch.no_grad():
            found = self.probabilities(images, cases)
        return [ImageAnswer(label_probs=probs) for probs in probabilities_by_label(self.labels, found)]

    def probabilities(self, images: Tensor, cases: Sequence[Case]) -> Tensor:
        """The logistic of the scaled difference of cosines, [B, labels]."""
        return torch.sigmoid(self.margins(images, range(len(images))))

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """Zero-shot classes wrong, or the image vector moved."""
        objective: Objective
        if aim == EMBEDDING:
            with torch.no_grad():
                vectors = self.encoder.image_vectors(images)
            objective = MoveEmbedding(self.encoder.image_vectors, vectors)
        else:
            objective = WrongAnswers(self.margins, truth_table(cases, self.labels), count_wrong_answers(cases, clean))
        objective.gradients = self.gradients
        return objective

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels]: difference of cosines to presence and absence times the scale; of several names the largest."""
        vectors = self.encoder.image_vectors(images)
        columns = [(vectors @ directions.T).amax(dim=1) for directions in self._directions]
        return self.encoder.scale * torch.stack(columns, dim=1)


def targeted_objective(
    goals: AttackGoals, aim: str, model: Any, before: Sequence[str], indications: Contexts,
    generate: GenerateReports,
) -> Objective:  # fmt: skip
    """The objective of the aims target, remove and invent, on the images where the aim is applicable.

    It is not where there is nothing to remove, or where the target's findings are present already. The loss of such
    images is 0, and the share of broken images leaves them out.

    Args:
        model: With `losses(images, reports, indications)`.
        before: Generated report of each clean image.
    """
    present = [present_observations(text) for text in before]
    inner: Objective
    if aim == TARGET:
        applicable = [found != present_observations(goals.report) for found in present]
        inner = LowerReportLoss(model, [goals.report] * len(before), indications, generate)
    elif aim == REMOVE:
        firsts = [next((one.observation for one in read(text) if one.present), "") for text in before]
        names = [goals.remove or first for first in firsts]
        applicable = [name in found for name, found in zip(names, present, strict=True)]
        names = [name or "pleural effusion" for name in names]  # any name will do where the aim is not applicable
        inner = ChangeFinding(model, before, names, indications, generate, invent=False)
    else:
        applicable = [goals.invent not in found for found in present]
        names = [goals.invent] * len(before)
        inner = ChangeFinding(model, before, names, indications, generate, invent=True)
    return WhereApplicable(inner, applicable)


def probabilities_by_label(labels: Sequence[Label], probabilities: Tensor) -> list[dict[str, float]]:
    """[B, labels] as label → probability for each image."""
    rows = probabilities.double().cpu().tolist()
    return [{label.name: value for label, value in zip(labels, row, strict=True)} for row in rows]


def truth_table(cases: Sequence[Case], labels: Sequence[Label]) -> Tensor:
    """[N, labels] of 1, 0 and not-a-number for unknown."""
    nan = float("nan")
    return torch.tensor([[case.truth.get(label.name, nan) for label in labels] for case in cases], dtype=torch.float32)


def count_wrong_answers(cases: Sequence[Case], answers: Sequence[ImageAnswer]) -> list[int]:
    """Number of known labels that each answer gets wrong."""
    return [
        sum((answer.label_probs[name] > 0.5) != bool(value)
            for name, value in case.truth.items() if name in answer.label_probs)
        for case, answer in zip(cases, answers, strict=True)
    ]  # fmt: skip
