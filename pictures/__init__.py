"""Pictures for CONTRIBUTING.md, drawn from the import contract and the code so that they cannot go stale.

``python -m pictures`` (or ``make pictures``) writes them to ``docs/figures``; ``tests/docs/test_pictures.py`` fails if
they are not what the code says now.
"""

from . import rooms, ways

PICTURES = {"rooms.svg": rooms.drawn, "ways.svg": ways.drawn}
