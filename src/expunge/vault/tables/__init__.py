"""Tables: schemas, the reading of rows, proposals, and predictions into files.

In the order of the work: a schema declares what columns are (`kinds`, `document`, `schema`); `sources` gives the record
batches of files or a frame; `cells` turns columns and `batches` whole batches into floats; `reading` makes `blocks` of
them, with `ids`; `splitting` cuts a table into pieces for several readers; `proposal` drafts a schema for a table;
`predictions` writes answers. All errors about tables are worded with `messages`.

This is the door: other rooms use the names in ``__all__`` and no others. What reads or writes tables needs pyarrow,
which takes longer to load than most requests take; so it is loaded when such a name is first used. Write
``tables.read_blocks(...)`` and not ``from .tables import read_blocks``, which loads it at once.
"""

from typing import TYPE_CHECKING

from ...doors import door
from .blocks import BLOCK_ROWS, Block, Piece, checked
from .ids import check_no_json, id_bytes, id_lines, id_texts
from .messages import shown, title
from .schema import Schema
from .similar import similar_ids

if TYPE_CHECKING:
    from .predictions import written_predictions
    from .proposal import plain_schema, propose
    from .reading import has_ids, read_blocks, read_ids
    from .sources import Body, kept, overwrites, read_once, taken
    from .splitting import count, pieces, read_piece

__all__ = [
    "BLOCK_ROWS",
    "Block",
    "Body",
    "Piece",
    "Schema",
    "check_no_json",
    "checked",
    "count",
    "has_ids",
    "id_bytes",
    "id_lines",
    "id_texts",
    "kept",
    "overwrites",
    "pieces",
    "plain_schema",
    "propose",
    "read_blocks",
    "read_ids",
    "read_once",
    "read_piece",
    "shown",
    "similar_ids",
    "taken",
    "title",
    "written_predictions",
]

_WITH_PYARROW = {
    "Body": "sources",
    "count": "splitting",
    "has_ids": "reading",
    "kept": "sources",
    "overwrites": "sources",
    "pieces": "splitting",
    "plain_schema": "proposal",
    "propose": "proposal",
    "read_blocks": "reading",
    "read_ids": "reading",
    "read_once": "sources",
    "read_piece": "splitting",
    "taken": "sources",
    "written_predictions": "predictions",
}

__getattr__, __dir__ = door(__name__, _WITH_PYARROW)
