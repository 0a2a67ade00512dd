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

from ..lazy_imports import lazy_attributes
from .blocks import BLOCK_ROWS, Block, Piece, check_parts
from .ids import find_similar_ids, id_bytes, id_texts, parse_id_list, refuse_json
from .messages import printable_text, table_title
from .schema import Schema

if TYPE_CHECKING:
    from .pieces import count_rows, read_piece, split_table
    from .predictions import write_predictions
    from .proposal import plain_schema, propose_schema
    from .reader import has_ids, read_blocks, read_ids
    from .sources import Upload, is_read_once, load_stream, open_stream, overwrites

__all__ = [
    "BLOCK_ROWS",
    "Block",
    "Piece",
    "Schema",
    "Upload",
    "check_parts",
    "count_rows",
    "find_similar_ids",
    "has_ids",
    "id_bytes",
    "id_texts",
    "is_read_once",
    "load_stream",
    "open_stream",
    "overwrites",
    "parse_id_list",
    "plain_schema",
    "printable_text",
    "propose_schema",
    "read_blocks",
    "read_ids",
    "read_piece",
    "refuse_json",
    "split_table",
    "table_title",
    "write_predictions",
]

_WITH_PYARROW = {
    "Upload": "sources",
    "count_rows": "pieces",
    "has_ids": "reader",
    "load_stream": "sources",
    "overwrites": "sources",
    "split_table": "pieces",
    "plain_schema": "proposal",
    "propose_schema": "proposal",
    "read_blocks": "reader",
    "read_ids": "reader",
    "is_read_once": "sources",
    "read_piece": "pieces",
    "open_stream": "sources",
    "write_predictions": "predictions",
}

__getattr__, __dir__ = lazy_attributes(__name__, _WITH_PYARROW)
