"""Requests to a vault, each a small frozen class: what its record says, how it is planned, and how it is replayed.

To add one: a class in a file of its own, and a line here.
"""

from ...errors import InvalidFile
from ..disk.request_lists import RequestLists, list_file_name
from ..ledger.records import Record
from .add import Add
from .clone import Clone, CloneOrigin
from .rebound import Rebound
from .rectify import Rectify
from .request import Request
from .restore import Restore
from .train import Train
from .unlearn import Readmit, Unlearn

REQUEST_TYPES: dict[str, type[Request]] = {
    request.kind: request for request in (Train, Add, Rectify, Unlearn, Readmit, Rebound, Restore, Clone, CloneOrigin)
}


def read_request(record: Record, lists: RequestLists) -> Request:
    """The request that a record tells of, with its lists if they lie beside the ledger."""
    kind = REQUEST_TYPES.get(record.kind)
    if kind is None:
        raise InvalidFile(f"the ledger has a request of the unknown kind {record.kind!r}: a newer release wrote it?")
    return kind.read(record.body, lambda sum_, size: lists.read(list_file_name(record.request, sum_), size))


__all__ = [
    "REQUEST_TYPES",
    "Add",
    "Clone",
    "CloneOrigin",
    "Readmit",
    "Rebound",
    "Rectify",
    "Request",
    "Restore",
    "Train",
    "Unlearn",
    "read_request",
]
