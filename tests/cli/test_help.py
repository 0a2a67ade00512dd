"""Help and documents: every command and option is explained, in --help and in the documents, and nothing else is."""

import argparse
import re
from pathlib import Path

import pytest

from expunge.cli.arguments import StoreOnce
from expunge.cli.program import build_parser

from support.commands import python

DOCS = Path(__file__).parents[2] / "docs"


def commands(below=None, path=()):
    """Every command of the program with its parser, by its words."""
    below = (build_parser() if below is None else below).complete()
    for action in below._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from commands(sub, (*path, name))
            return
    yield path, below


COMMANDS = dict(commands())
OF_THE_PAPER = {("paper", name) for name in ("list", "run", "check", "report")}
OF_THE_VAULT = {
    *((name,) for name in ("train", "predict", "unlearn", "rectify", "add", "readmit", "rebound", "replan", "find")),
    *((name,) for name in ("status", "log", "verify", "schema", "key", "head", "receipts", "evaluate", "plan")),
    *((name,) for name in ("backup", "restore", "clone", "audit")),
    ("certificate", "show"),
    ("certificate", "check"),
    ("certificate", "page"),
}
OF_THE_SERVICE = {
    *(("serve",), ("token", "new"), ("token", "list"), ("token", "revoke"), ("aliases", "add")),
    *(("matter", name) for name in ("open", "add", "review", "list", "show", "find", "release")),
    *(("webhook", name) for name in ("list", "deliveries", "resend", "test")),
}
DOCUMENTED = {"paper.md": OF_THE_PAPER, "vault.md": OF_THE_VAULT, "service.md": OF_THE_SERVICE}
GROUPS = [(), ("certificate",), ("paper",), ("token",), ("aliases",), ("matter",), ("webhook",)]


def options(words):
    return {name for action in COMMANDS[words]._actions for name in action.option_strings} - {"-h", "--help"}


def test_there_are_these_commands():
    assert COMMANDS.keys() == OF_THE_PAPER | OF_THE_VAULT | OF_THE_SERVICE


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_options_with_a_value_may_be_given_once_or_say_that_they_may_be_repeated(words):
    for action in COMMANDS[words]._actions:
        if action.option_strings and action.nargs != 0 and not isinstance(action, StoreOnce):
            assert isinstance(action, argparse._AppendAction), action.option_strings
            assert re.search("may (be )?(repeat|given many times)", action.help), action.option_strings


@pytest.mark.parametrize("words", [*COMMANDS, *GROUPS], ids=" ".join)
def test_every_command_helps(run, words):
    code, out, err = run(*words, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: {' '.join(['expunge', *words])} ")
    for option in options(words) if words in COMMANDS else ():
        assert option in out


def test_train_says_that_it_plans_if_nothing_is_said(run):
    text = " ".join(run("train", "--help")[1].split())
    assert "Without --shards, --rate, --features, --alpha and --plan, a small plan tries settings" in text
    assert "Train a model on a table, in a new vault.\n" in run("--help")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("unlern",), "there is no command 'unlern' (did you mean unlearn?); see expunge --help"),
        (("token", "lst"), "there is no command 'lst' (did you mean list?); see expunge token --help"),
        (("zzz",), "there is no command 'zzz'; see expunge --help"),
    ],
)
def test_an_unknown_command_is_answered_with_the_one_that_was_meant(run, words, message):
    assert run(*words) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_no_command_is_a_usage_error_that_shows_the_commands(run, words):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "commands:" in err


def test_every_command_and_option_says_what_it_is_for():
    for below in COMMANDS.values():
        assert below.description
        assert not [action.dest for action in below._actions if not action.help]


def test_every_command_of_the_vault_answers_programs_and_takes_a_vault():
    for words in OF_THE_VAULT | OF_THE_SERVICE:
        assert "--json" in options(words)
        assert "--vault" in options(words) or words in (("schema",), ("plan",)) or words[0] == "certificate"


def rows(document):
    """The tables of commands and of options in a document: what the first cell names, and what the line names."""
    found = re.findall(r"^\| `((?:expunge |--)[^`]+)`(.*)\|$", (DOCS / document).read_text(), re.MULTILINE)
    return {name.removeprefix("expunge "): set(re.findall(r"--[a-z-]+", rest)) for name, rest in found}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_is_documented_with_its_options(words):
    documented = rows(next(name for name, those in DOCUMENTED.items() if words in those))
    line = next(name for name in documented if re.match(rf"{' '.join(words)}\b", name))
    assert documented[line] == options(words)
    assert {name.split()[0] for name in documented} >= options(words)


def test_nothing_is_documented_that_is_not_there():
    there = {option for words in COMMANDS for option in options(words)}
    for document, those in DOCUMENTED.items():
        named = [name for name in rows(document) if not name.startswith("--")]
        assert {next(words for words in COMMANDS if name.startswith(" ".join(words))) for name in named} == those
        assert {name.split()[0] for name in rows(document) if name.startswith("--")} <= there


def test_options_are_not_abbreviated(run):
    for words in (("unlearn", "--vau", "spend.vault", "--id", "1"), ("--vers",), ("unl",)):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert re.fullmatch(r"error: .+; see expunge( unlearn)? --help\n", err)


LOADED = """
import sys
before = set(sys.modules)
from expunge import cli
for words in {commands}:
    sys.argv = ["expunge", *words]
    try:
        cli.entry()
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)
print("loaded:", *{{name.split(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names))
"""


def test_help_loads_the_standard_library_only():
    asked = [[*words, "--help"] for words in [*COMMANDS, *GROUPS]]
    done = python(LOADED.format(commands=[["--version"], *asked]))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].split() == ["loaded:", "expunge"]


# NumPy alone takes longer to load than the command to answer.
def test_status_loads_the_standard_library_only(spend):
    done = python(LOADED.format(commands=[["status", "--vault", str(spend)]]))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].split() == ["loaded:", "expunge"]
