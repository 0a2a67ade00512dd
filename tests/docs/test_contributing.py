"""Contributors find every room in CONTRIBUTING.md, each says what it promises, and texts are in plain words."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "expunge"
FILES = sorted(SRC.rglob("*.py"))
ROOMS = sorted(path.parent for path in SRC.rglob("*/__init__.py"))
TREES = {str(path.relative_to(SRC)): ast.parse(path.read_text()) for path in FILES}

# What reads like a riddle to someone whose English is plain; beside it, what to write.
RIDDLES = {
    r"\b(one|two|each|rows|columns|values|bits|bytes|ids|words|numbers) an? "
    r"(coded row|row|column|id|slot|lane|shard|stripe|learner|line|word|person|target|input|time)\b": "per",
    r"there more than once": "duplicates:",
    r"not, or not so\b": "missing, or different,",
    r"[Ll]ook at everything": "run the checks",
    r"\balso the way back\b": "its own inverse",
    r"\bled astray\b": "misled",
    r"^Step \d\.": "what the step does",
    r"\b1 ids\b": "1 id",
}


def test_every_folder_is_a_room_that_says_what_it_promises():
    folders = {path.parent for path in FILES}
    assert folders == {*ROOMS, SRC}
    docs = {
        str(room.relative_to(SRC)): ast.get_docstring(TREES[f"{room.relative_to(SRC)}/__init__.py"]) for room in ROOMS
    }
    assert {name for name, doc in docs.items() if not doc or len(doc.split()) < 8} == set()


def _in_table():
    """The rooms in CONTRIBUTING's table of rooms: what stands in code in its first column."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| room |")[2].partition("\n\n")[0]
    first = re.findall(r"^\| *(`.*?) *\|", table, flags=re.MULTILINE)
    return {name.strip("/").replace(".", "/") for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def test_every_room_is_in_the_table_of_contributing():
    rooms = {str(room.relative_to(SRC)) for room in ROOMS}
    modules = {path.stem for path in SRC.glob("*.py") if not path.stem.startswith("_")}
    assert (rooms | modules) - _in_table() == set()


def test_contributing_names_no_room_that_is_not_there():
    known = {str(path.relative_to(SRC).with_suffix("")) for path in (*FILES, *ROOMS)}
    assert _in_table() - known == set()


def _texts(tree):
    """Messages and docstrings, each on one line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def test_messages_and_docstrings_are_in_plain_words():
    texts = [(name, text) for name, tree in TREES.items() for text in _texts(tree)]
    found = {(name, riddle[0]) for name, text in texts for pattern in RIDDLES if (riddle := re.search(pattern, text))}
    assert found == set(), f"write instead: {RIDDLES}"
