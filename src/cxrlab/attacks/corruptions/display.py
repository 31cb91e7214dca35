"""Grey values gone wrong between detector and screen: exposure, inversion, contrast, gamma.

All four treat every pixel alike, wherever it stands, so the size of the film does not matter to them.
"""

from __future__ import annotations

import math

import numpy as np

from cxrlab.attacks.corruptions.film import Film, either

# Film values are taken as the logarithm of what the detector counted: from black to white it counts e³, about 20
# times, less. A doubled dose then shifts the whole film by ln 2 / 3 of its range.
LOG_RANGE = 3.0

# Doublings or halvings of the dose. A quarter is within what an automatic exposure does from film to film; from one
# doubling on, guides for technicians advise to look whether the film must be repeated.
STOPS = (0.25, 0.5, 0.8, 1.2, 1.6)

# How far each value goes towards its opposite. Halfway every film is one even grey that nobody reads, and both sides
# of it are hard to read: the steps leave it out and pass from a paled film (contrast 0.4) to a pale negative (-0.5).
TURNED = (0.1, 0.2, 0.3, 0.75, 1.0)

# Share of the contrast that scattered rays leave: a thick patient without a grid loses about half.
CONTRAST_LEFT = (0.85, 0.72, 0.58, 0.45, 0.32)

# Exponents; screens that are set wrongly differ by about 1.2, and from 2 on the lungs or the mediastinum are lost.
GAMMAS = (1.15, 1.35, 1.65, 2.1, 2.8)


def exposure(film: Film, severity: int, rng: np.random.Generator) -> Film:
    """Too dark (overexposed) or too white (underexposed), with what leaves the window clipped."""
    shift = STOPS[severity - 1] * math.log(2.0) / LOG_RANGE
    shifted: Film = film + np.float32(either(rng) * shift)
    return np.clip(shifted, 0.0, 1.0)


def inversion(film: Film, severity: int, rng: np.random.Generator) -> Film:
    """Black and white changing places, as when the photometric tag of a file is ignored; 5 is the full negative."""
    turned = np.float32(TURNED[severity - 1])
    if turned == 1.0:
        return np.float32(1.0) - film
    return film + turned * (np.float32(1.0) - np.float32(2.0) * film)


def contrast(film: Film, severity: int, rng: np.random.Generator) -> Film:
    """Paler about the mean of the film, which stays as bright as it was."""
    middle = np.float32(film.mean(dtype=np.float64))
    return middle + np.float32(CONTRAST_LEFT[severity - 1]) * (film - middle)


def gamma(film: Film, severity: int, rng: np.random.Generator) -> Film:
    """Middle greys too dark or too light, black and white as they were."""
    exponent = GAMMAS[severity - 1] ** either(rng)
    return np.power(film, np.float32(exponent))
