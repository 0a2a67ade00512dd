"""A state as one file of plain arrays and JSON, and back. A file is untrusted input."""
