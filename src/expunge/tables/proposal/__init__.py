"""Proposals: a schema for a table without one, to edit (`propose_schema`) or to use as it is (`plain_schema`)."""

from .draft import draft_schema, plain_schema, propose_schema

__all__ = ["draft_schema", "plain_schema", "propose_schema"]
