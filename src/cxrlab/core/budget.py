"""What answers cost, and a stop before more is spent than was allowed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cxrlab.core.errors import RunError
from cxrlab.core.protocols import Generated

PROMPT_TOKENS = "prompt_tokens"  # key of an answer's extra values, where the model counts them
_CHARACTERS = 4  # of English text to a token, for models that do not count


class BudgetSpent(RunError):
    """The next batch could cost more than is left."""


@dataclass
class Budget:
    """Tokens and their price.

    Args:
        limit: Most that all kept answers together may cost, in the currency of the prices; None for no limit.
        price_prompt: Price of 1,000 tokens asked.
        price_answer: Price of 1,000 tokens answered.
        prompt_tokens: Tokens asked so far.
        answer_tokens: Tokens answered so far.
        heaviest: Tokens, by the model's count, that a guessed token of a prompt was at most: its words may be shorter
            than English ones, and its template adds some.
    """

    limit: float | None = None
    price_prompt: float = 0.0
    price_answer: float = 0.0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    heaviest: float = 1.0

    @property
    def spent(self) -> float:
        """Price of everything booked."""
        return self.cost(self.prompt_tokens, self.answer_tokens)

    def cost(self, prompt_tokens: float, answer_tokens: float) -> float:
        """Price of so many tokens."""
        return (prompt_tokens * self.price_prompt + answer_tokens * self.price_answer) / 1000

    def book(self, prompt_tokens: int, answer_tokens: int, guessed: int = 0) -> None:
        """Count tokens that were paid for.

        Args:
            prompt_tokens: Tokens asked.
            answer_tokens: Tokens answered.
            guessed: How many the prompt was taken for; 0 where nobody guessed.
        """
        self.prompt_tokens += prompt_tokens
        self.answer_tokens += answer_tokens
        if guessed:
            self.heaviest = max(self.heaviest, prompt_tokens / guessed)

    def holds(self, guessed: int, answer_tokens: int) -> bool:
        """Whether what is left pays for prompts of so many guessed tokens and for the most that can be answered."""
        return self.limit is None or self.spent + self.cost(guessed * self.heaviest, answer_tokens) <= self.limit

    def allow(self, guessed: int, answer_tokens: int) -> None:
        """Refuse with `BudgetSpent` what may cost more than is left.

        Args:
            guessed: Tokens that will be asked, guessed.
            answer_tokens: The most that can be answered.
        """
        if not self.holds(guessed, answer_tokens):
            most = self.cost(guessed * self.heaviest, answer_tokens)
            raise BudgetSpent(
                f"stopped before spending: {self.spent:.4f} of the max-cost {self.limit:g} are spent and the next "
                f"batch may cost {most:.4f}; everything so far is kept. Raise it and run the same command to go on."
            )


def guessed_tokens(text: str) -> int:
    """Tokens of a text, guessed from its length."""
    return math.ceil(len(text) / _CHARACTERS)


def tokens_of(prompt: str, answer: Generated) -> tuple[int, int]:
    """Tokens asked and answered: the model's own counts where it gives any, else a guess."""
    asked, answered = answer.extra.get(PROMPT_TOKENS), answer.tokens
    return (
        asked if type(asked) is int and asked >= 0 else guessed_tokens(prompt),
        answered if type(answered) is int and answered >= 0 else guessed_tokens(answer.text),
    )
