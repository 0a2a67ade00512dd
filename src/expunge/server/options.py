"""Options: how a service treats requests."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from .clocks import Regulation


@dataclass(frozen=True)
class Options:
    """How requests are treated."""

    window: timedelta = timedelta(0)  # in which a request can be cancelled before it is carried out
    batch_every: timedelta | None = None  # carry out together what came in such a time,
    batch_size: int | None = None  # or once there are so many
    two_person_release: bool = False  # a second token confirms the release of a matter
    regulation: Regulation = "gdpr"  # if a request names none
    organisation: str = ""  # who runs the service, for the certificates that people read
    public: str | None = None  # the address by which other systems reach the service; None is this machine's
    root_path: str = ""  # the path below which a proxy shows the service
    allow_hosts: tuple[str, ...] = ()  # private hosts that may be posted to, by name
    drp_directory: Path | None = None  # the agents of the Data Rights Protocol
    business_id: str = ""  # what they call us
    verify_every: timedelta | None = None  # how often the vault is verified; None is never
    open_metrics: bool = False  # whether /metrics needs no token
    most_ids: int = 100_000  # per request
    most_rows: int = 1_000_000

    @property
    def address(self) -> str:
        """How other systems reach the service."""
        public = "http://localhost" if self.public is None else self.public.rstrip("/")
        return public if public.endswith(self.root_path) else public + self.root_path

    @property
    def at_once(self) -> bool:
        """Whether a request is carried out as it comes."""
        return not self.window and self.batch_every is None and self.batch_size is None
