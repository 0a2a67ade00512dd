"""Proposals: a schema for a table that has none, either to edit (`propose`) or to use as it is (`plain_schema`)."""

from .draft import plain_schema, propose_schema

__all__ = ["plain_schema", "propose_schema"]
