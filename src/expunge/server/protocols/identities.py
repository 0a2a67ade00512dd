"""Identities: whom of the vault other systems mean, by id or, where there are aliases, by e-mail address."""

from collections.abc import Sequence

from ..queue import Job, NewJob, erasure_outcome
from ..service import Service


def resolve_people(service: Service, ids: Sequence[str], emails: Sequence[str]) -> list[str] | None:
    """The ids that are meant; those of addresses that nobody has are left out. None if nobody can tell who is meant."""
    known = [sealed for sealed in map(service.aliases.find, emails) if sealed is not None]
    found = [*ids, *service.vault.unseal(known)]
    return found if found or (emails and has_aliases(service)) else None


def record_unknown_people(service: Service, new_job: NewJob, people: int) -> Job:
    """Keep an erasure about so many people of whom not even an id is known: it is over, and nobody was erased."""
    with service.database.transaction():
        if (
            new_job.idempotency is not None
            and (known := service.queue.find_answered(new_job.idempotency[0])) is not None
        ):
            return known[1]
        job = service.queue.add(new_job, service.clock(), "running")
        service.emit("accepted", job)
        job = service.queue.move(
            job.id, "not_known", **erasure_outcome([], None) | {"unknown": people, "people": people}
        )
        service.emit("not_known", job)
    return job


def has_aliases(service: Service) -> bool:
    """Whether there is any alias, so that an address which is none is nobody's."""
    return service.aliases.has_any()
