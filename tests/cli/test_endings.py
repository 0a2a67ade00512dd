"""How commands end: the exit code is decided before the interpreter's end, whatever becomes of the output."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from expunge import cli
from expunge.errors import UnknownId
from expunge.vault import Vault

from support.commands import TRAIN, V, newcomer, python, shell
from support.vaults import everything

ANEW = ("--replace", "--fewer-rows", "--accept-worse")

pytestmark = pytest.mark.slow  # each a process or more
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


def unheard(*words):
    """Run a command whose standard output is a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    try:
        words = [sys.executable, "-m", "expunge", *words]
        return subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True, check=False, env=newcomer())
    finally:
        os.close(write)


# --- output that cannot be written


@pytest.mark.parametrize(
    ("output", "reason"),
    [pytest.param("> /dev/full", "No space left on device", marks=full), (">&-", "standard output is closed")],
)
@pytest.mark.parametrize("form", ["", "--json"])
def test_a_lost_answer_is_not_taken_for_a_refusal(spend, output, reason, form):
    done = shell(f"expunge unlearn --vault spend.vault --id person-1 {form} {output}")
    assert done.returncode == 14
    said = json.loads(done.stderr)["error"]["message"] if form else done.stderr.removeprefix("error: ").rstrip("\n")
    assert said == f"request 2 was completed, but the answer could not be written: {reason}"
    assert [r.state for r in Vault.open(spend).requests] == ["certified", "certified"]


@pytest.mark.parametrize(
    "words",
    [
        ("unlearn", "--id", "person-1"),
        ("readmit", "--id", "person-3"),
        ("add", "more.parquet"),
        ("rectify", "corrected.csv"),
        ("train", "more.parquet", *ANEW, *TRAIN[:4], "--shards", "2", "--rate", "2", "--features", "identity"),
    ],
)
def test_no_request_ends_quietly_if_nobody_reads_its_answer(spend, ok, words):
    ok("unlearn", *V, "--id", "person-3")
    done = unheard(*words, *V)
    assert done.returncode == 14
    assert done.stderr == ("error: request 3 was completed, but the answer could not be written: Broken pipe\n")
    assert [r.kind for r in Vault.open(spend).requests] == ["train", "unlearn", words[0]]


def test_a_new_key_pair_is_told_even_if_nobody_reads_the_answer(spend):
    Path("spend.key").unlink()
    done = unheard("key", *V, "--new")
    assert done.returncode == 14
    assert done.stderr.startswith("error: the signing key was changed, but the answer could not be written: ")


@pytest.mark.parametrize("words", [("predict", "new.csv"), ("log",), ("status",), ("verify",), ("log", "--json")])
def test_whoever_stops_reading_an_answer_gets_no_error(spend, words):
    done = unheard(*words, *V)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("output", [pytest.param("> /dev/full", marks=full), ">&-"])
@pytest.mark.parametrize("words", ["predict new.csv", "status", "log --json"])
def test_an_answer_that_cannot_be_written_is_an_error(spend, words, output):
    done = shell(f"expunge {words} --vault spend.vault {output}")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr or "standard output is closed" in done.stderr


@pytest.mark.parametrize("errors", [pytest.param("2> /dev/full", marks=full), "2>&-"])
def test_an_error_that_cannot_be_written_keeps_its_exit_code(spend, errors):
    assert shell(f"expunge unlearn --vault spend.vault --id nobody {errors}").returncode == UnknownId.exit_code
    assert shell(f"expunge unlearn --vault spend.vault {errors}").returncode == 3
    assert shell(f"expunge unlearn {errors}").returncode == 2
    Path("spend.key").unlink()
    assert shell(f"expunge unlearn --vault spend.vault --id person-1 {errors}").returncode == 0  # with a note


@full
@pytest.mark.parametrize(("name", "code"), [("stdout", 14), ("stderr", 0)])
def test_a_stream_that_fails_has_nothing_left_for_the_end(spend, run, monkeypatch, name, code):
    Path("spend.key").unlink()  # so that there is a note as well
    with Path("/dev/full").open("w") as stream:
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, stream)
            ended, _, _ = run("unlearn", *V, "--id", "person-1")
        assert ended == code
        stream.flush()  # as the interpreter does at its end


@pytest.mark.parametrize(("name", "code"), [("stdout", 14), ("stderr", 0), ("stdin", 3)])
def test_a_stream_that_is_closed_is_not_written_or_read(spend, run, monkeypatch, name, code):
    Path("spend.key").unlink()
    ids = ("--ids-from", "-") if name == "stdin" else ("--id", "person-1")
    monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, "argv", ["expunge", "unlearn", *V, *ids])
    with pytest.raises(SystemExit) as ended:
        cli.entry()
    assert (ended.value.code or 0) == code


def test_no_file_gets_the_number_of_a_closed_stream():
    done = python("""
import os
from expunge.cli import terminal
for number in range(3):
    os.close(number)
terminal.prepare()
file = os.open(os.devnull, os.O_RDONLY)
os._exit(file)
""")
    assert done.returncode >= 3


def test_what_a_locale_cannot_write_is_escaped(spend):
    environment = newcomer() | {"PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "expunge", "predict", "new.csv", *V, "--out", "zwölf.csv"]
    done = subprocess.run(words, capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (0, b"2 predictions in zw\\xf6lf.csv\n")


# --- Ctrl-C

INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(name, path=None, target=None):
        if name in {modules}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
sys.argv = ["expunge", *{words}]
from expunge.cli import entry
entry()
"""
LINE = "interrupted; run expunge log to see which requests were completed"


@pytest.mark.parametrize("module", ["expunge.cli.program", "argparse", "expunge.vault", "numpy"])
def test_ctrl_c_while_importing_is_one_line(spend, module):
    before = everything(spend)
    modules = {module, "expunge.cli.terminal"}  # pressed again while the line is about to be written
    done = python(INTERRUPTED.format(modules=modules, words=["unlearn", *V, "--id", "person-1"]))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{LINE}\n")
    assert everything(spend) == before


def test_ctrl_c_in_a_request_is_one_line(spend, run, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Vault, "unlearn", interrupted)
    assert run("unlearn", *V, "--id", "person-1") == (130, "", f"{LINE}\n")
    code, out, err = run("unlearn", *V, "--id", "person-1", "--json")
    assert (code, out) == (130, "")
    assert json.loads(err) == {"error": {"type": "Interrupted", "message": LINE, "exit_code": 130}}


def test_ctrl_c_that_a_library_turned_into_another_error_is_one_line(spend, run, monkeypatch):
    def imported(*_):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("carefully study the documentation") from None

    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("expunge.cli.program._run_command", imported)
    assert run("predict", "new.csv", *V) == (130, "", "interrupted\n")


def test_ctrl_c_in_a_command_without_requests_does_not_name_the_log(here):
    done = python(INTERRUPTED.format(modules={"pyarrow"}, words=["schema", "new.csv", "--target", "age"]))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


# --- errors for programs


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("unlearn", *V, "--id", "nobody"), "UnknownId", 4),
        (("unlearn", *V), "InvalidInput", 3),
        (("unlearn", *V, "--ids-from", "nowhere.txt"), "FileNotFoundError", 1),
        (("unlearn", "--id", "nobody"), "UsageError", 2),
        (("unlearn", *V, "--id", "nobody", "--nonsense"), "UsageError", 2),
        (("status", "--vault", "none.vault"), "MissingData", 8),
        (("certificate", "show", "new.csv"), "InvalidCertificate", 13),
        (("nonsense",), "UsageError", 2),
        ((), "UsageError", 2),
    ],
)
def test_an_error_for_programs_is_an_object_on_standard_error(spend, run, words, kind, code):
    ended, out, err = run(*words, "--json")
    assert (ended, out, err.count("\n")) == (code, "", 1)
    error = json.loads(err)
    assert error.keys() == {"error"}
    assert error["error"].keys() == {"type", "message", "exit_code"}
    assert (error["error"]["type"], error["error"]["exit_code"]) == (kind, code)
    _, _, text = run(*words)
    if words:
        assert text == f"error: {error['error']['message']}\n"


def test_a_verdict_for_programs_is_on_standard_output_and_its_error_beside_it(spend, run):
    rows = next(spend.glob("rows.*"))
    data = bytearray(rows.read_bytes())
    data[40] ^= 1
    rows.write_bytes(data)
    code, out, err = run("verify", *V, "--json")
    assert (code, json.loads(out)["ok"]) == (11, False)
    assert json.loads(err)["error"]["type"] == "VerificationFailed"


def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(run, monkeypatch):
    def missing(args):
        raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")

    monkeypatch.setattr("expunge.cli.queries.open_vault", missing)
    code, out, err = run("status", *V)
    assert (code, out) == (1, "")
    assert err == "error: this command needs pyarrow: pip install 'expunge[vault]'\n"


def test_an_error_that_nobody_foresaw_is_not_hidden(monkeypatch):
    from expunge.cli import program

    def broken(args):
        raise ZeroDivisionError

    monkeypatch.setattr("expunge.cli.queries.open_vault", broken)
    with pytest.raises(ZeroDivisionError):
        program.run(["status", *V])


def test_too_little_memory_is_one_line(run, monkeypatch):
    def greedy(args):
        raise MemoryError

    monkeypatch.setattr("expunge.cli.queries.open_vault", greedy)
    assert run("status", *V) == (1, "", "error: there is not enough memory\n")


def test_a_library_that_cannot_be_loaded_is_one_line(run, monkeypatch):
    def starved(args):
        raise ImportError("IMPORTANT:\nread this") from ImportError("lib.so: failed to map segment from shared object")

    monkeypatch.setattr("expunge.cli.queries.open_vault", starved)
    text = "error: a library could not be loaded: lib.so: failed to map segment from shared object\n"
    assert run("status", *V) == (1, "", text)


def test_the_programs_that_a_shell_runs(here):
    script = Path(sys.executable).with_name("expunge")

    def ran(*args, **options):
        words = [script, *args]
        return subprocess.run(words, capture_output=True, text=True, check=False, env=newcomer(), **options)

    trained = ran("train", "customers.parquet", *V, *TRAIN, "--json")
    assert (trained.returncode, trained.stderr) == (0, "")
    assert json.loads(trained.stdout)["rows"] == 30
    erased = ran("unlearn", *V, "--ids-from", "-", input="person-1\nperson-2\n")
    assert erased.returncode == 0
    assert erased.stdout.startswith("erased 3 rows of 2 people")
    unknown = ran("unlearn", *V, "--id", "secret-person-77")
    assert (unknown.returncode, unknown.stdout) == (4, "")
    assert re.fullmatch(r"error: ids that are not in the vault: 1 of 1, .*\n", unknown.stderr)
    assert ran("verify", *V).returncode == 0
    checked = ran("certificate", "check", "000002.jws", cwd="spend.certificates")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout.endswith("the signature is valid for spend.pub\n")


@full
@pytest.mark.parametrize("buffered", ["", "PYTHONUNBUFFERED=1 "])
@pytest.mark.parametrize("words", ["--help", "--version", "train --help", "certificate --help"])
def test_a_help_that_cannot_be_written_is_an_error(buffered, words):
    done = shell(f"{buffered}expunge {words} > /dev/full")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: No space left on device\n"
