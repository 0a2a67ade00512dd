"""Requests to a vault, each a small frozen class: its record in the ledger, its plan, and its replay.

To add one: write a class in a file of its own, and add a line here.
"""

from ...errors import InvalidFile
from ..disk.request_lists import RequestLists, list_file_name
from ..ledger.records import Record
from .add import Add
from .clone import Clone, CloneOrigin
from .rebound import Rebound
from .rectify import Rectify
from .replan import Replan
from .request import Request
from .restore import Restore
from .train import Train
from .unlearn import Readmit, Unlearn

REQUEST_TYPES: dict[str, type[Request]] = {
    request.kind: request
    for request in (Train, Add, Rectify, Unlearn, Readmit, Rebound, Replan, Restore, Clone, CloneOrigin)
}


def read_request(record: Record, lists: RequestLists) -> Request:
    """Return the request of a record, with its lists if they lie beside the ledger."""
    request_type = REQUEST_TYPES.get(record.kind)
    if request_type is None:
        raise InvalidFile(
            f"the ledger has a request of the unknown kind {record.kind!r}: use the release that wrote it"
        )
    return request_type.read(record.body, lambda sha256, size: lists.read(list_file_name(record.request, sha256), size))


__all__ = [
    "REQUEST_TYPES",
    "Add",
    "Clone",
    "CloneOrigin",
    "Readmit",
    "Rebound",
    "Rectify",
    "Replan",
    "Request",
    "Restore",
    "Train",
    "Unlearn",
    "read_request",
]
