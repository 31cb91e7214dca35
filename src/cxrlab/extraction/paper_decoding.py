"""How both sides choose their words in the paper."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.models.decoding import Decoding


@dataclass(frozen=True)
class PaperDecoding(Decoding):
    """Settings of generation; the default is ADA-Steal's diverse beam search.

    Args:
        strategy: greedy, sample, beam, or diverse (group beam search with a penalty for words of other groups).
        max_new_tokens: Longest answer, in tokens.
        temperature: For sample; 1 is the model's own distribution, above 0.
        top_p: For sample; smallest set of tokens that holds this share of the probability, above 0 up to 1.
        answers: Answers an image, of which the first counts.
        beams: For beam and diverse; sequences kept, over all groups: the paper's 3 groups of 6.
        groups: For diverse; it divides `beams`.
        diversity_penalty: For diverse; taken off a token's log-probability for each earlier group that chose it.
        length_penalty: For beam and diverse; the sum of log-probabilities is divided by length to this power.
        early_stopping: For beam and diverse; stop as soon as every beam has ended, though a better one might come.
        seed: For sample.
    """

    strategy: str = "diverse"
    max_new_tokens: int = 512
    beams: int = 18
    groups: int = 3
