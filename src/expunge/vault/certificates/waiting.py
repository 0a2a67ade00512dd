"""Which requests wait for the signing key, as the ledger tells."""

from collections.abc import Sequence

from ..ledger.records import DONE, SIGNATURE, Record


def waiting(records: Sequence[Record]) -> list[int]:
    """Requests that are done and not certified, from the record of a request on."""
    open_: list[int] = []
    for record in records:
        if record.is_request:
            open_ = list(record.body["waiting"])
        elif record.kind == DONE:
            open_.append(record.request)
        elif record.kind == SIGNATURE and record.request in open_:
            open_.remove(record.request)
    return open_
