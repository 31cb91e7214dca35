"""Settings of the guard before a served model: every field is also a flag of the command line and a key of YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, nearest
from cxrlab.extraction.defence.config import DefenceSettings
from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
from cxrlab.models.loading import Loading

WORDS = ("plain", "coarse", "watermark")  # defences that only choose words; pictures are the detectors' business


@dataclass(frozen=True)
class GuardConfig:
    """Which pictures a served model is shown, whom it stops answering, and in which words it answers.

    Thresholds come from benign images alone, so the corpus must hold the kind of images that honest clients send.

    Args:
        benign: Folder of a corpus whose images stand for honest traffic; a guard needs one.
        calibrate: Splits of it that thresholds are set on; never the one on which they are tried.
        n: Images of them, at most, drawn with the seed; all when left out.
        detectors: Any of chest-gate, perturbation (by image), prada, mmd, coverage (by account; they need an encoder).
        encoder: Contrastive encoder that turns images into vectors, such as builtin:encoder; none does without.
        image_bound: Share of benign images that each detector by image may refuse, at most, with 95 % confidence; it
            needs about 4.5/image_bound images.
        account_bound: Share of benign accounts that each detector may stop in `account_queries` queries.
        account_queries: Queries after which the count of an account begins anew.
        least_flagged: Pictures that a detector by image must refuse in that time, at least, before the account is
            stopped; its own bound may ask for more.
        defence: Words of every report: plain, coarse or watermark, see `cxrlab defend`; the model's own when left out.
        key_file: File with the key of the watermark; the environment variable CXRLAB_WATERMARK_KEY when left out.
        seed: Decides which images do what.
        batch_size: Images that are measured at once.
    """

    benign: Path | None = None
    calibrate: tuple[str, ...] = ("train", "val")
    n: int | None = None
    detectors: tuple[str, ...] = ("chest-gate", "perturbation")
    encoder: str = "none"
    image_bound: float = 0.001
    account_bound: float = 0.01
    account_queries: int = 100
    least_flagged: int = 3
    defence: str | None = None
    key_file: Path | None = None
    seed: int = 7
    batch_size: int = 32

    def __post_init__(self) -> None:
        if self.defence is not None and self.defence not in WORDS:
            more = "; gates and quotas are the business of detectors and of accounts"
            raise ConfigError(f"defence='{self.defence}' is none that chooses words.{nearest(self.defence, WORDS)} "
                              f"There are: {', '.join(WORDS)}{more}.")  # fmt: skip
        if not 2 <= self.least_flagged <= self.account_queries:
            raise ConfigError(
                f"least_flagged={self.least_flagged} is not usable; give at least 2, since one benign image may be "
                f"refused by mistake, and at most account_queries={self.account_queries}."
            )
        self.detection(Path())  # what detection would refuse is refused here

    def detection(self, benign: Path, loading: Loading | None = None) -> DetectConfig:
        """The same as settings of detection.

        Args:
            benign: Folder of the corpus.
            loading: How the encoder is loaded.
        """
        # Sizes of detectors by account that an account of fewer queries would never reach shrink with it.
        usual, most = DetectorSettings(), self.account_queries - 1
        settings = DetectorSettings(
            image_bound=self.image_bound,
            account_bound=self.account_bound,
            account_queries=self.account_queries,
            window=min(usual.window, most),
            least=min(usual.least, most),
        )
        out = next((split for split in ("test", "val", "train") if split not in self.calibrate), "")
        if not out:
            raise ConfigError("calibrate names every split; leave one out, so that the guard can be tried on it.")
        return DetectConfig(
            benign,
            detectors=self.detectors,
            encoder=self.encoder,
            calibrate=self.calibrate,
            held_out=out,
            n=self.n,
            batch_size=self.batch_size,
            seed=self.seed,
            detector=settings,
            loading=loading or Loading(),
        )

    def wording(self, benign: Path) -> DefenceSettings:
        """Settings of the defence that chooses words, checked on the reports of the benign corpus."""
        return DefenceSettings(benign=benign, benign_split=self.calibrate[0], key_file=self.key_file)
