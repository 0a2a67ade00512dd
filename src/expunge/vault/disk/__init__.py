"""The files of a vault: how they are written, which of them count, and what they hold."""
