"""``python -m expunge`` is the command ``expunge``."""

from .cli import entry

if __name__ == "__main__":
    entry()
