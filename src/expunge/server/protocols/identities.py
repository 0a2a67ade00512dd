"""Identities: whom of the vault other systems mean, by id or, where there are aliases, by e-mail address."""

from collections.abc import Sequence

from ..outcomes import erasure_outcome
from ..queue import Job, NewJob
from ..service import Service


def people_of(service: Service, ids: Sequence[str], emails: Sequence[str]) -> list[str] | None:
    """The ids that are meant; those of addresses that nobody has are left out. None if nobody can tell who is meant."""
    known = [sealed for sealed in map(service.aliases.find, emails) if sealed is not None]
    found = [*ids, *service.vault.unseal(known)]
    return found if found or (emails and knows_emails(service)) else None


def answer_nobody(service: Service, asked: NewJob, people: int) -> Job:
    """Keep an erasure about so many people of whom not even an id is known: it is over, and nobody was erased."""
    with service.database.writing():
        if asked.answers is not None and (known := service.queue.answered(asked.answers[0])) is not None:
            return known[1]
        job = service.queue.add(asked, service.clock(), "running")
        service.tell("accepted", job)
        job = service.queue.move(
            job.id, "not_known", **erasure_outcome([], None) | {"unknown": people, "people": people}
        )
        service.tell("not_known", job)
    return job


def knows_emails(service: Service) -> bool:
    """Whether there is any alias, so that an address which is none is nobody's."""
    return service.aliases.any()
