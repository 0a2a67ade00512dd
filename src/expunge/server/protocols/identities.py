"""Identities: whom of the vault other systems mean, by id or, where there are aliases, by e-mail address."""

from collections.abc import Sequence

from ..service import Service


def people_of(service: Service, ids: Sequence[str], emails: Sequence[str]) -> list[str] | None:
    """The ids that are meant; those of addresses that nobody has are left out. None if nobody can tell who is meant."""
    known = [sealed for sealed in map(service.aliases.find, emails) if sealed is not None]
    found = [*ids, *service.vault.unseal(known)]
    return found if found or (emails and knows_emails(service)) else None


def knows_emails(service: Service) -> bool:
    """Whether there is any alias, so that an address which is none is nobody's."""
    return service.aliases.any()
