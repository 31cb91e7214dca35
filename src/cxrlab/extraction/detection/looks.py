"""Plain statistics of a picture, without learned weights: its layout, its tones, and its finest grain.

Layout and tones tell whether it can be a frontal chest radiograph; the grain tells whether something was added to each
pixel. All are measured on the picture fitted into a square of one side, which is what a model sees of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.image_codec import to_unit
from cxrlab.data.images import fit

if TYPE_CHECKING:
    from cxrlab.data.images import ImageArray
    from cxrlab.extraction.records import Pixels

Row = NDArray[np.float64]

SIDE = 128  # of the square in which pictures are measured
_COARSE = 8  # cells a side of the layout
_BLOCK = 8  # pixels a side of the parts in which the quietest grain is looked for
_TINY = 1e-4  # a fortieth of a grey level: logarithms of an even picture stay finite
_BLACK, _WHITE = 8 / 255, 247 / 255

TONES = ("border", "corners", "mirror", "spine", "mean", "spread", "low", "middle", "high", "black", "white")
LAYOUT = tuple(f"cell{row}{column}" for row in range(_COARSE) for column in range(_COARSE))
GRAIN = ("residual", "quiet", "laplace", "fine", "neighbours")
NAMES = (*TONES, *LAYOUT, *GRAIN)


def looks_of(pixels: Pixels) -> Row:
    """The statistics of one picture, uint8 [H, W], in the order of `NAMES`; all finite, also for an even picture."""
    image = fit(to_unit(pixels), SIDE)
    return np.concatenate([tones(image), layout(image), grain(image)])


def columns(names: tuple[str, ...]) -> list[int]:
    """Where these statistics stand in a row of looks."""
    return [NAMES.index(name) for name in names]


def tones(image: ImageArray) -> Row:
    """How bright it is and where, `TONES`: a chest image is dark around, bright in the middle, and nearly its mirror.

    `black` and `white` are square roots of the shares of such pixels.

    Args:
        image: [S, S] in [0, 1], S divisible by 32.
    """
    small = _means(image, 32)
    edge = np.concatenate([small[0], small[-1], small[:, 0], small[:, -1]])
    corners = np.concatenate([small[:4, :4].ravel(), small[:4, -4:].ravel()])
    lungs = np.concatenate([small[9:20, 6:12].ravel(), small[9:20, 20:26].ravel()])
    spine = small[9:20, 14:18].mean() - lungs.mean()
    low, middle, high = np.quantile(image, (0.05, 0.5, 0.95))
    # Roots of shares: most images have next to nothing wholly black or white, and a few have much.
    shares = (float((image < _BLACK).mean()) ** 0.5, float((image > _WHITE).mean()) ** 0.5)
    whole = (float(image.mean()), float(image.std()), float(low), float(middle), float(high), *shares)
    return np.array([edge.mean(), corners.mean(), _correlation(small, small[:, ::-1]), spine, *whole])


def layout(image: ImageArray) -> Row:
    """8 × 8 mean tones, each in standard deviations from the mean of the picture; zeros for an even one."""
    coarse = _means(image, _COARSE)
    spread = coarse.std()
    return np.zeros(coarse.size) if spread < _TINY else ((coarse - coarse.mean()) / spread).ravel()


def grain(image: ImageArray) -> Row:
    """What is left when the picture's shapes are taken away, `GRAIN`.

    `residual` is the mean distance of a pixel from the median of its 3 × 3 neighbours, `quiet` the same in the calmest
    tenth of the picture, `laplace` the mean of |4 x - neighbours| inside, `fine` the share of the spectrum above half
    of the highest frequency, all four as natural logarithms. `neighbours` is the correlation of the residual with that
    of the next pixel, down and across, which noise of single pixels lowers; 1 where there is no residual.
    """
    rest = image.astype(np.float64) - _median(image)
    size = np.abs(rest)
    calm = np.quantile(_means(size, image.shape[0] // _BLOCK), 0.1)
    laplace = 4 * image[1:-1, 1:-1] - image[:-2, 1:-1] - image[2:, 1:-1] - image[1:-1, :-2] - image[1:-1, 2:]
    amounts = np.array([size.mean(), calm, np.abs(laplace).mean(), _fine_share(image)])
    ways = (rest[1:], rest[:-1]), (rest[:, 1:], rest[:, :-1])
    beside = np.mean([_correlation(*way, even=1.0) for way in ways])
    return np.array([*np.log(amounts + _TINY), beside])


def _means(image: NDArray[np.floating], parts: int) -> Row:
    """Means over parts × parts equal squares."""
    step = image.shape[0] // parts
    return np.asarray(image.reshape(parts, step, parts, step).mean(axis=(1, 3)), np.float64)


def _median(image: ImageArray) -> Row:
    """The median of each pixel's 3 × 3 neighbours; the picture is continued by its edge."""
    padded = np.pad(image, 1, mode="edge")
    side = image.shape[0]
    around = [padded[row : row + side, column : column + side] for row in range(3) for column in range(3)]
    return np.asarray(np.partition(np.stack(around), 4, axis=0)[4], np.float64)


def _fine_share(image: ImageArray) -> float:
    """Share of the energy, the mean left out, whose frequency along either axis is above half of the highest."""
    energy = np.abs(np.fft.rfft2(image - image.mean())) ** 2
    down = np.abs(np.fft.fftfreq(image.shape[0])) > 0.25
    across = np.fft.rfftfreq(image.shape[1]) > 0.25
    total = float(energy.sum())
    return float(energy[down[:, None] | across[None, :]].sum()) / total if total > _TINY else 0.0


def _correlation(one: NDArray[np.floating], two: NDArray[np.floating], even: float = 0.0) -> float:
    """Pearson's correlation of two arrays of one shape; `even` where either is the same everywhere."""
    a, b = one - one.mean(), two - two.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > _TINY else even
