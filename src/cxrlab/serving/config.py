"""Settings of the guard before a served model: every field is also a flag of the command line and a key of YAML."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, fields
from pathlib import Path

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SPLITS
from cxrlab.extraction.config import DefenceSettings
from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
from cxrlab.models.load_settings import LoadSettings

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
            raise ConfigError(f"defence='{self.defence}' is none that chooses words.{did_you_mean(self.defence, WORDS)} "
                              f"There are: {', '.join(WORDS)}{more}.")  # fmt: skip
        if not 2 <= self.least_flagged <= self.account_queries:
            raise ConfigError(
                f"least_flagged={self.least_flagged} is not usable; give at least 2, since one benign image may be "
                f"refused by mistake, and at most account_queries={self.account_queries}."
            )
        self.detection(Path())  # what detection would refuse is refused here

    def detection(self, benign: Path, loading: LoadSettings | None = None) -> DetectConfig:
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
            loading=loading or LoadSettings(),
        )

    def wording(self, benign: Path) -> DefenceSettings:
        """Settings of the defence that chooses words, checked on the reports of the benign corpus."""
        return DefenceSettings(benign=benign, benign_split=self.calibrate[0], key_file=self.key_file)


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may ask of the machine.

    Args:
        body_bytes: Longest request.
        held_bytes: Bytes of requests that are held at once; whoever comes when they are used up is sent away.
        json_marks: Commas, colons and brackets in a request: a few megabytes of them would fill the memory.
        messages: Messages in a request.
        text_characters: Characters of text in a request.
        images: Pictures in a request; the last message alone may hold the one that is answered.
        pixels: Pixels of a picture, by its header, before it is decoded.
        side: Pixels of its longer side: a line of millions takes gigabytes to be made as small as models want it.
        held_pixels: Pixels of all images that are decoded and not yet answered; further ones wait.
        parts: Chunks of a PNG picture, or segments of a JPEG picture before its first scan.
        scans: Passes in which a JPEG picture may come: each costs as much as the whole picture.
        tokens: Longest answer that may be asked for.
        choices: Answers to one request.
        queue: Requests under way at once, without those whose body is still being received; further ones get 503.
        connections: Open connections; a further one takes the place of the one that has been idle longest.
        headers_s: Seconds in which the head of a request must have come.
        body_s: Seconds in which the body must have come.
        sent_s: Seconds in which a client must have taken what it is sent.
        keep_alive_s: Seconds for which a connection stays open between requests.
        answer_s: Seconds after which a request is given up.
        hang_s: Seconds for which the model may write at one batch before the server calls itself unwell.
        drain_s: Seconds that requests under way have for their end when the server is told to stop.
    """

    body_bytes: int = 32 << 20
    held_bytes: int = 256 << 20
    json_marks: int = 100_000
    messages: int = 64
    text_characters: int = 200_000
    images: int = 4
    pixels: int = 25_000_000
    side: int = 10_000
    held_pixels: int = 100_000_000
    parts: int = 20_000
    scans: int = 32
    tokens: int = 2048
    choices: int = 8
    queue: int = 256
    connections: int = 256
    headers_s: float = 10.0
    body_s: float = 20.0
    sent_s: float = 30.0
    keep_alive_s: float = 20.0
    answer_s: float = 300.0
    hang_s: float = 120.0
    drain_s: float = 30.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not value > 0:
                raise ConfigError(f"limits.{one.name}={value} would let nobody in; give a number above 0.")
        for part, whole in (("body_bytes", "held_bytes"), ("pixels", "held_pixels")):
            if getattr(self, part) > getattr(self, whole):
                raise ConfigError(
                    f"limits.{part}={getattr(self, part):,} is more than limits.{whole}={getattr(self, whole):,}, so "
                    "the largest request would never be served; raise the second or lower the first."
                )


@dataclass(frozen=True)
class Allowance:
    """What an account may ask for, unless its entry in the file of keys says otherwise.

    Args:
        requests_per_minute: Requests in a minute; as many at once; no limit when left out.
        answers_per_day: Answers in a day (UTC); no limit when left out.
        answers_total: Answers altogether; no limit when left out.
        requests_in_flight: Requests under way at once, from the head to the answer; further ones get 429. Without keys
            it holds for each client address. No limit when null.
    """

    requests_per_minute: float | None = None
    answers_per_day: int | None = None
    answers_total: int | None = None
    requests_in_flight: int | None = 64

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"{one.name}={value} is not usable; give a number above 0, or leave it out.")


@dataclass(frozen=True)
class ServeConfig:
    """Settings of `cxrlab serve`.

    Args:
        model: The model that writes reports, by name (`cxrlab models ls`).
        text: A text model for requests without a picture (judge, oracle, structurer); such requests are refused when
            left out.
        name: What clients call the report model; its own name when left out, which may tell a path.
        host: Address to listen at; anything but this machine needs `expose` and `keys`.
        port: Port to listen at; 0 takes a free one, which is printed.
        expose: Listen at an address that other machines reach; nothing here encrypts, so put a proxy before it.
        keys: YAML file of accounts and the hashes of their keys (`cxrlab serve key` writes it); everybody on this
            machine may ask when left out.
        guard: Let detectors look at every image first, and stop accounts that seem to copy the model.
        max_batch: Most answers that are written together.
        max_wait_ms: Milliseconds that the first request waits for others to be answered with.
        log_file: File that the log is added to, beside the error stream.
        allowance: Rate and quotas of every account that has none of its own.
        limits: What requests may ask of the machine.
        guarding: What the guard looks for, and the benign images that it is set on.
        loading: How the model is opened and, where it is behind an address, reached.
    """

    model: str
    text: str | None = None
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    expose: bool = False
    keys: Path | None = None
    guard: bool = False
    max_batch: int = 64
    max_wait_ms: float = 10.0
    log_file: Path | None = None
    allowance: Allowance = field(default_factory=Allowance)
    limits: Limits = field(default_factory=Limits)
    guarding: GuardConfig = field(default_factory=GuardConfig)
    loading: LoadSettings = field(default_factory=LoadSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port={self.port} is none; give a number from 0 to 65535.")
        if self.max_batch < 1:
            raise ConfigError(f"max_batch={self.max_batch} is not usable; give a whole number from 1.")
        if not 0 <= self.max_wait_ms <= 10_000:
            raise ConfigError(f"max_wait_ms={self.max_wait_ms} is not usable; give milliseconds from 0 to 10000.")
        if self.guard and self.guarding.benign is None:
            raise ConfigError(
                "a guard is set on images like those that honest clients send; name a corpus of them with "
                "--guarding.benign CORPUS."
            )
        if not self.guard and self.guarding != GuardConfig():
            raise ConfigError("settings of the guard were given, but no guard; give --guard as well.")
        if not self.on_this_machine and not (self.expose and self.keys):
            raise ConfigError(
                f"host={self.host} can be reached from other machines; give --expose and --keys FILE if that is meant "
                "(and a proxy that encrypts before it), or leave the host at 127.0.0.1."
            )

    @property
    def on_this_machine(self) -> bool:
        """Whether nobody else can reach the host; a name other than localhost may mean anything and is refused."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise ConfigError(f"host='{self.host}' is no IP address; give one, such as 127.0.0.1 or 0.0.0.0.") from None


@dataclass(frozen=True)
class RehearseConfig:
    """A server tried out on this machine before anybody else meets it, for models that you own or may test.

    Args:
        model: The model to be served, by name.
        data: Corpus of benign images.
        split: Of the benign images; the guard must not have been set on it.
        n: Benign images, drawn with the seed; all of the split when left out.
        accounts: Honest accounts that take turns in sending them.
        clients: Requests under way at once.
        alone: Of the images as many are sent again one by one, to see what batches gain; 0 for none.
        pools: Pictures that somebody who copies the model would send, an account a pool; see `cxrlab extract`.
        queries: Pictures of each pool, sent one after the other; it ends where the account is stopped.
        size: Side of those pictures in pixels.
        guard: Put the guard before the model.
        guarding: What the guard looks for; the train and val splits of the data stand for honest traffic when no
            benign corpus is named.
        seed: Decides images and pictures.
        loading: How the model is opened.
    """

    model: str
    data: Path
    split: str = "test"
    n: int | None = 100
    accounts: int = 5
    clients: int = 16
    alone: int = 12
    pools: tuple[str, ...] = ("scenes",)
    queries: int = 30
    size: int = 128
    guard: bool = True
    guarding: GuardConfig = field(default_factory=GuardConfig)
    seed: int = 7
    loading: LoadSettings = field(default_factory=LoadSettings)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ConfigError(
                f"split='{self.split}' is unknown.{did_you_mean(self.split, SPLITS)} Use {', '.join(SPLITS)}."
            )
        for name, low in {"n": 1, "accounts": 1, "clients": 1, "alone": 0, "queries": 1, "size": 8, "seed": 0}.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name}={value} is not usable; give a whole number of at least {low}.")
        if len(set(self.pools)) < len(self.pools):
            raise ConfigError("pools names one twice; name each once.")
        benign = self.guarding.benign
        if self.guard and (benign is None or benign == self.data) and self.split in self.guarding.calibrate:
            raise ConfigError(
                f"the split {self.split} cannot both set the guard's thresholds and try them; take it out of "
                "guarding.calibrate, or name another split."
            )
