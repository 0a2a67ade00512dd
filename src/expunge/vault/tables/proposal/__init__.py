"""Proposals: a schema for a table that has none, either to edit (`propose`) or to use as it is (`plain_schema`)."""

from .plain import plain_schema
from .propose import propose

__all__ = ["plain_schema", "propose"]
