"""Settings of `cxrlab serve` and `cxrlab serve rehearse`: flags of the command line and keys of YAML."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, fields
from pathlib import Path

from cxrlab.attacks.input_transformations import parse_transformation
from cxrlab.core.config import check_at_least, check_choice
from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.records import SPLITS
from cxrlab.extraction.config import DefenceSettings
from cxrlab.extraction.defence.base import rewording_defences
from cxrlab.extraction.detection.config import DetectConfig, DetectorSettings
from cxrlab.models.load_settings import LoadSettings


@dataclass(frozen=True)
class GuardConfig:
    """Settings of the guard, which refuses images, blocks accounts, and changes the wording of reports.

    Thresholds come from benign images only, so the corpus must hold the kind of images that benign clients send.

    Args:
        benign: Folder of a corpus of benign images; required for a guard.
        calibrate: Its splits for setting thresholds; never the one for testing them.
        n: Largest number of these images, drawn with the seed; default: all.
        detectors: Detectors per image, or per account (these need an encoder); `cxrlab detect --help` lists all.
        encoder: Contrastive encoder for image embeddings, such as builtin:encoder; or none.
        image_bound: Largest share of benign images that a detector per image refuses, with 95 % confidence; needs about
            4.5 / bound images.
        account_bound: Largest share of benign accounts that a detector blocks within `account_queries` queries.
        account_queries: Queries after which the count of an account is reset.
        least_flagged: Fewest images that a detector per image must refuse in that time before the account is blocked;
            its own bound may require more.
        defence: Wording of reports: plain, coarse or watermark, see `cxrlab defend`; default: unchanged.
        key_file: File with the key of the watermark; default: the environment variable CXRLAB_WATERMARK_KEY.
        seed: Assigns images to their uses.
        batch_size: Images per batch.
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
        if self.defence is not None and self.defence not in (known := rewording_defences()):
            raise ConfigError(
                f"defence='{self.defence}' does not change the wording of reports.{did_you_mean(self.defence, known)} "
                f"There are: {', '.join(known)}; for gates use --guarding.detectors, for quotas the accounts."
            )
        if not 2 <= self.least_flagged <= self.account_queries:
            raise ConfigError(
                f"least_flagged={self.least_flagged} is not usable; give at least 2, since one benign image may be "
                f"refused by mistake, and at most account_queries={self.account_queries}."
            )
        self.detection(Path())  # raises for settings that detection would refuse

    def detection(self, benign: Path, loading: LoadSettings | None = None) -> DetectConfig:
        """These settings for `cxrlab detect`."""
        # Windows of detectors per account must not exceed its number of queries.
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
            raise ConfigError("calibrate names every split; leave one out, so that the guard can be tested on it.")
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
        """Settings of the defence, which is checked on the reports of the benign corpus."""
        return DefenceSettings(benign=benign, benign_split=self.calibrate[0], key_file=self.key_file)


@dataclass(frozen=True)
class Limits:
    """Resource limits of one request and of all together.

    Args:
        body_bytes: Longest request body.
        held_bytes: Bytes of all requests held at once; further ones get 503.
        json_marks: Commas, colons and brackets in a request: a few megabytes of them would fill the memory.
        messages: Messages in a request.
        text_characters: Characters of text in a request.
        images: Images in a request; the last message may hold one, which is answered.
        pixels: Pixels of an image by its header, before it is decoded.
        side: Pixels of its longer side: resizing a line of millions takes gigabytes.
        held_pixels: Pixels of all images that are decoded and not yet answered; further ones wait.
        parts: Chunks of a PNG, or segments of a JPEG before its first scan.
        scans: Scans of a JPEG: each costs as much as the whole image.
        tokens: Longest answer.
        choices: Answers to one request.
        queue: Requests in flight, without those whose body is still being received; further ones get 503.
        connections: Open connections; a further one replaces the one that has been idle longest.
        headers_s: Seconds to receive the head of a request.
        body_s: Seconds to receive the body.
        sent_s: Seconds for a client to read the answer.
        keep_alive_s: Seconds for which a connection stays open between requests.
        answer_s: Seconds after which a request is cancelled.
        hang_s: Seconds of one batch after which the server reports itself hung.
        drain_s: Seconds for requests in flight to end when the server stops.
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
                raise ConfigError(f"limits.{one.name}={value} is not usable; give a number above 0.")
        for part, whole in (("body_bytes", "held_bytes"), ("pixels", "held_pixels")):
            if getattr(self, part) > getattr(self, whole):
                raise ConfigError(
                    f"limits.{part}={getattr(self, part):,} exceeds limits.{whole}={getattr(self, whole):,}, so the "
                    "largest request would never be answered; raise the second or lower the first."
                )


@dataclass(frozen=True)
class Allowance:
    """Limits of an account, unless its entry in the file of keys has its own.

    Args:
        requests_per_minute: Requests per minute, also the largest burst; default: no limit.
        answers_per_day: Answers per day (UTC); default: no limit.
        answers_total: Answers in total; default: no limit.
        requests_in_flight: Requests at once, from head to answer; further ones get 429. Without keys it applies to each
            client address. No limit when null.
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
        model: The report model, by name (`cxrlab models ls`).
        text: A text model for requests without an image (judge, oracle, structurer); without one they are refused.
        name: Name of the report model for clients; default: its own name, which may contain a path.
        host: Address to listen at; other than this machine it needs `expose` and `keys`.
        port: Port to listen at; 0 takes a free one, which is printed.
        expose: Listen at an address that other machines reach; put an encrypting proxy before it.
        keys: YAML file of accounts and hashes of their keys (written by `cxrlab serve key`); without it, every client on
            this machine is served.
        guard: Let detectors check every image, and block accounts that seem to copy the model.
        input_defence: Input transformation before the report model, such as jpeg:50 or noise:0.05; a random one has a new
            draw for every answer.
        max_batch: Most answers per batch.
        max_wait_ms: Milliseconds that the first request of a batch waits for others.
        log_file: File to which the log is appended, beside the error stream.
        allowance: Rate limit and quotas of accounts without their own.
        limits: Resource limits.
        guarding: Settings of the guard.
        loading: How the model is loaded, or its endpoint reached.
    """

    model: str
    text: str | None = None
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    expose: bool = False
    keys: Path | None = None
    guard: bool = False
    input_defence: str | None = None
    max_batch: int = 64
    max_wait_ms: float = 10.0
    log_file: Path | None = None
    allowance: Allowance = field(default_factory=Allowance)
    limits: Limits = field(default_factory=Limits)
    guarding: GuardConfig = field(default_factory=GuardConfig)
    loading: LoadSettings = field(default_factory=LoadSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port={self.port} is not a port; give a number from 0 to 65535.")
        check_at_least(self, max_batch=1)
        if self.input_defence is not None:
            parse_transformation(self.input_defence)
        if not 0 <= self.max_wait_ms <= 10_000:
            raise ConfigError(f"max_wait_ms={self.max_wait_ms} is not usable; give milliseconds from 0 to 10000.")
        if self.guard and self.guarding.benign is None:
            raise ConfigError(
                "a guard is calibrated on images like those of benign clients; name a corpus of them with "
                "--guarding.benign CORPUS."
            )
        if not self.guard and self.guarding != GuardConfig():
            raise ConfigError("settings of the guard were given, but no guard; give --guard as well.")
        if not self.on_this_machine and not (self.expose and self.keys):
            raise ConfigError(
                f"host={self.host} can be reached from other machines; give --expose and --keys FILE if that is intended "
                "(with an encrypting proxy before it), or keep --host 127.0.0.1."
            )

    @property
    def on_this_machine(self) -> bool:
        """Whether only this machine can reach the host; a name other than localhost is refused."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            raise ConfigError(
                f"host='{self.host}' is not an IP address; give one, such as 127.0.0.1 or 0.0.0.0."
            ) from None


@dataclass(frozen=True)
class RehearseConfig:
    """Settings of `cxrlab serve rehearse`, for models that you own or may test.

    Args:
        model: The model to serve, by name.
        data: Corpus of benign images.
        split: Split of the benign images; not one on which the guard is calibrated.
        n: Benign images, drawn with the seed; default: the whole split.
        accounts: Benign accounts that take turns in sending them.
        clients: Requests at once.
        alone: Number of images sent again one by one, to measure the gain of batches; 0 for none.
        pools: Image pools of copying accounts, one account per pool; see `cxrlab extract`.
        queries: Images of each pool, sent one by one until the account is blocked.
        size: Side of those images in pixels.
        guard: Use the guard.
        guarding: Settings of the guard; default for its benign images: the train and val splits of the data.
        seed: Decides which images are used.
        loading: How the model is loaded.
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
        check_choice("split", self.split, SPLITS)
        check_at_least(self, n=1, accounts=1, clients=1, alone=0, queries=1, size=8, seed=0)
        if len(set(self.pools)) < len(self.pools):
            raise ConfigError(f"pools={','.join(self.pools)} names a pool twice; name each once.")
        benign = self.guarding.benign
        if self.guard and (benign is None or benign == self.data) and self.split in self.guarding.calibrate:
            raise ConfigError(
                f"split={self.split} cannot both set the guard's thresholds and test them; remove it from "
                "--guarding.calibrate, or give another --split."
            )
