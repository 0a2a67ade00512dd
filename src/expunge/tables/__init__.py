"""Tables: schemas, reading rows, proposing schemas, and writing predictions to files.

A schema declares the kinds of columns (`kinds`, `schema`); `sources` yields record batches from files, frames and
uploads; `cells` turns batches into floats and `ids` normalises ids; `reader` yields `blocks` of rows; `pieces` splits a
table for several processes; `proposal` drafts a schema for a table; `predictions` writes answers. `messages`, `toml`
and `knots` hold what errors, schemas and plans share.

Other packages use only the names in ``__all__``. Those that read or write tables need pyarrow, which takes longer to
load than most requests take, so it is loaded when one of them is first used. Write ``tables.read_blocks(...)`` instead
of ``from .tables import read_blocks``, which would load it at once.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_attributes
from .blocks import BLOCK_ROWS, Block, Piece, check_parts
from .ids import (
    find_similar_ids,
    id_bytes,
    id_texts,
    parse_id_list,
    rank_ids,
    refuse_json,
    sample_positions,
)
from .knots import has_more_values, place_knots
from .messages import printable_text, quote_names, table_title
from .schema import Schema
from .toml import toml_literal

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
    "has_more_values",
    "id_bytes",
    "id_texts",
    "is_read_once",
    "load_stream",
    "open_stream",
    "overwrites",
    "parse_id_list",
    "place_knots",
    "plain_schema",
    "printable_text",
    "propose_schema",
    "quote_names",
    "rank_ids",
    "read_blocks",
    "read_ids",
    "read_piece",
    "refuse_json",
    "sample_positions",
    "split_table",
    "table_title",
    "toml_literal",
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
