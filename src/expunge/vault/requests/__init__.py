"""Requests to a vault: what each changes, what its record says, and how it is carried out again."""
