"""How the thread of the model asks it: images and prompts of one batch in, what each comes to out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from cxrlab.core.codec import to_unit
from cxrlab.core.protocols import Generated, ImageToText, TextModel
from cxrlab.models.decoding import ChoosesWords, Decoding, DrawsInParts
from cxrlab.serving.batching import Outcome
from cxrlab.serving.pictures import Pixels

One = TypeVar("One")


@dataclass(frozen=True, eq=False)
class ImageQuestion:
    """An image that wants a report.

    Args:
        image: uint8 [H, W].
        indication: Reason of the examination.
        decoding: How words are chosen; None leaves it to the model.
        number: Which one of the drawn answers is wanted; None for all of them.
    """

    image: Pixels
    indication: str | None
    decoding: Decoding | None
    number: int | None = None

    @property
    def key(self) -> Hashable:
        """Images of equal keys are answered together."""
        return ("image", self.decoding)

    @property
    def rows(self) -> int:
        """Answers that the model writes."""
        return self.decoding.answers if self.decoding and self.number is None else 1


@dataclass(frozen=True)
class TextQuestion:
    """A prompt for the text model.

    Args:
        prompt: The prompt.
        max_tokens: Longest answer.
        seed: For models that draw.
    """

    prompt: str
    max_tokens: int
    seed: int

    @property
    def key(self) -> Hashable:
        """Prompts of equal keys are answered together."""
        return ("text", self.max_tokens, self.seed)

    @property
    def rows(self) -> int:
        """Answers that the model writes."""
        return 1


Question = ImageQuestion | TextQuestion


class Askers:
    """The models of one server; only one thread calls them.

    Args:
        model: Writes reports.
        text: Answers text; None where nobody does.
        abreast: Requests under way at once to a model behind an address.
    """

    def __init__(self, model: ImageToText, text: TextModel | None = None, abreast: int = 8) -> None:
        self.model, self.text, self._abreast = model, text, abreast
        self.heeds_decoding = isinstance(model, ChoosesWords)

    def parts(self, question: Question, choices: int) -> list[Question]:
        """A question as the parts that together get so many answers; another client's may be asked between them.

        A model that draws in one piece alone is asked once, and one that does not draw gives the same each time; a text
        model is asked with a seed for each.
        """
        if isinstance(question, TextQuestion):
            return [replace(question, seed=question.seed + more) for more in range(choices)]
        if question.rows > 1 and isinstance(self.model, DrawsInParts):
            return [replace(question, number=number) for number in range(choices)]
        return [question]

    def ask(self, questions: Sequence[Question]) -> Sequence[Outcome]:
        """What each question of one key comes to."""
        images = [question for question in questions if isinstance(question, ImageQuestion)]
        if images:
            # What one image costs elsewhere is not paid again because another has failed.
            return self._each(self._reports, images) if self.model.capabilities.black_box else self._reports(images)
        prompts = [question for question in questions if isinstance(question, TextQuestion)]
        # Text models behind an address fetch side by side as well, and those here batch by themselves.
        return self._completions(prompts)

    def _reports(self, questions: Sequence[ImageQuestion]) -> list[list[Generated]]:
        if questions[0].number is not None:
            return self._drawn(questions)
        images = [to_unit(question.image) for question in questions]
        indications = [question.indication for question in questions]
        if isinstance(self.model, ChoosesWords):
            return self.model.answers(images, indications, questions[0].decoding)
        return [[one] for one in self.model.generate(images, indications)]

    def _drawn(self, questions: Sequence[ImageQuestion]) -> list[list[Generated]]:
        """One drawn answer for each question; neighbours of one request, and requests alike, go in one call."""
        assert isinstance(self.model, DrawsInParts)  # `parts` has looked
        requests: dict[int, list[ImageQuestion]] = {}
        for question in questions:
            requests.setdefault(id(question.image), []).append(question)
        calls: dict[tuple[int, int], list[ImageQuestion]] = {}  # (first, count) → the first question of each request
        for asked in requests.values():
            numbers = sorted(question.number or 0 for question in asked)
            starts = [number for number in numbers if number - 1 not in numbers]
            ends = [number for number in numbers if number + 1 not in numbers]
            for first, last in zip(starts, ends, strict=True):
                calls.setdefault((first, last - first + 1), []).append(asked[0])
        found: dict[tuple[int, int], Generated] = {}
        for (first, count), asked in calls.items():
            images, indications = [to_unit(one.image) for one in asked], [one.indication for one in asked]
            decoding = replace(asked[0].decoding or Decoding(), answers=count)
            for one, answers in zip(asked, self.model.answers_from(images, indications, decoding, first), strict=True):
                found |= {(id(one.image), first + place): answer for place, answer in enumerate(answers)}
        return [[found[id(question.image), question.number or 0]] for question in questions]

    def _completions(self, questions: Sequence[TextQuestion]) -> list[list[Generated]]:
        assert self.text is not None  # whoever asks has looked
        prompts, first = [question.prompt for question in questions], questions[0]
        return [[one] for one in self.text.complete(prompts, max_tokens=first.max_tokens, seed=first.seed)]

    def _each(
        self, ask: Callable[[Sequence[One]], list[list[Generated]]], questions: Sequence[One]
    ) -> Sequence[Outcome]:
        def alone(question: One) -> Outcome:
            try:
                return ask([question])[0]
            except Exception as error:  # it is handed to whoever asked this one
                return error

        with ThreadPoolExecutor(min(self._abreast, len(questions))) as pool:
            return list(pool.map(alone, questions))
