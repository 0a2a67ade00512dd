"""Matters that tests open and release."""

from expunge.server.matters import Author

LEGAL = Author("legal", "token-of-legal")


def hold(service, *ids, name="case 7", reason="a lawsuit", review=None):
    """Open a matter that holds these people."""
    return service.matters.open(name, reason, review, LEGAL, list(ids)).matter


def release(service, matter, author=LEGAL):
    """Release a matter, as somebody does who types its name."""
    return service.matters.release(matter.id, matter.name, "settled", author)
