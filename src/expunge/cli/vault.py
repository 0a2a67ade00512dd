"""``expunge train``, ``unlearn`` and the other commands of a vault."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..errors import AnswerLost, InvalidInput, InvalidSetting, VerificationFailed

if TYPE_CHECKING:
    from ..encoding.features import FeatureMap
    from ..vault import Receipt, Vault
    from ..vault.tables.intake import Progress as Told

vault = typer.Typer()
certificate = typer.Typer(no_args_is_help=True, help="Show and check certificates, offline.")

Data = Annotated[Path, typer.Argument(help="A CSV, Parquet or Arrow file.", show_default=False)]
Where = Annotated[
    Path, typer.Option("--vault", help="The vault, a folder whose name ends in .vault.", show_default=False)
]
Ids = Annotated[list[str] | None, typer.Option("--id", help="An id; may be given many times.", show_default=False)]
IdsFrom = Annotated[
    Path | None, typer.Option("--ids-from", help="A file with one id a line; - reads them from standard input.")
]
Key = Annotated[
    Path | None,
    typer.Option("--key", envvar="EXPUNGE_KEY", help="The private key that signs; default: the one beside the vault."),
]
Wait = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for another writer.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
SkipErased = Annotated[bool, typer.Option("--skip-erased", help="Leave out rows of erased ids instead of refusing.")]


@vault.command()
def train(
    data: Data,
    where: Where,
    target: Annotated[list[str] | None, typer.Option(help="The column to predict.", show_default=False)] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The column of the ids.", show_default=False)] = None,
    schema: Annotated[Path | None, typer.Option(help="What each column is (TOML); see expunge schema.")] = None,
    shards: Annotated[int, typer.Option(min=1, help="Lanes, s: rows of a coded stripe.")] = 20,
    rate: Annotated[float, typer.Option(help="Rows a coded row, tau; there are shards / rate learners.")] = 5,
    features: Annotated[str, typer.Option(help="fourier:D, powers:D or identity.")] = "fourier:300",
    alpha: Annotated[float, typer.Option(help="The ridge penalty.")] = 1e-4,
    clip: Annotated[bool, typer.Option("--clip", help="Clip values outside declared bounds, do not refuse.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the code, the features and the slots.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Train an existing vault anew, on this table alone.")
    ] = False,
    skip_erased: SkipErased = False,
    key: Key = None,
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Train a model on a table, in a new vault."""
    from .. import CodedRegressor
    from ..vault import Vault

    model = CodedRegressor(
        shards=shards, rate=rate, features=_features(features), alpha=alpha, clip=clip, random_state=seed
    )
    with _progress(as_json) as told:
        made = Vault.create(
            where,
            data,
            target=target,
            id=id_,
            model=model,
            schema=schema,
            key=key,
            replace=replace,
            skip_erased=skip_erased,
            wait=wait,
            progress=told,
        )
    assert made.receipt is not None
    _show(made.receipt, "learned {rows} of {people}; {learners}", as_json)


@vault.command()
def predict(
    data: Data,
    where: Where,
    out: Annotated[Path | None, typer.Option(help="A CSV or Parquet file; default: CSV on standard output.")] = None,
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Predict the target of every row of a table."""
    opened = _open(where, None, wait)
    if out is None and not as_json:
        opened.predict_to(data, sys.stdout.buffer)
    elif out is None:
        typer.echo(json.dumps({"predictions": opened.predict(data).tolist()}))
    else:
        rows = opened.predict_to(data, out)
        _say({"rows": rows, "out": out}, f"{_counted(rows, 'prediction', 'predictions')} in {out}", as_json)


@vault.command()
def unlearn(
    where: Where, ids: Ids = None, ids_from: IdsFrom = None, key: Key = None, wait: Wait = 10.0, as_json: Json = False
) -> None:
    """Erase all rows of these ids: from the model, from the disk, for good."""
    wanted = _ids(ids, ids_from)
    receipt = _open(where, key, wait).unlearn(wanted)
    if receipt.seconds:
        _show(receipt, "erased {rows} of {people}; {learners} learned anew", as_json)
    else:
        _show(receipt, "erased before, by request {request}", as_json)


@vault.command()
def rectify(data: Data, where: Where, key: Key = None, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Replace all rows of the ids in a table by right ones."""
    receipt = _open(where, key, wait).rectify(data)
    _show(receipt, "corrected {rows} of {people}; {learners} learned anew", as_json)


@vault.command()
def add(
    data: Data,
    where: Where,
    skip_erased: SkipErased = False,
    key: Key = None,
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Learn more rows; a table that holds erased ids is refused."""
    opened = _open(where, key, wait)
    with _progress(as_json) as told:
        receipt = opened.add(data, skip_erased=skip_erased, progress=told)
    _show(receipt, "added {rows} of {people}; {learners} learned anew", as_json)


@vault.command()
def readmit(
    where: Where, ids: Ids = None, ids_from: IdsFrom = None, key: Key = None, wait: Wait = 10.0, as_json: Json = False
) -> None:
    """Let erased ids come again: the people consented."""
    wanted = _ids(ids, ids_from)
    _show(_open(where, key, wait).readmit(wanted), "{people} may be added again", as_json)


@vault.command()
def status(where: Where, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Show what is in a vault."""
    found = asdict(_open(where, None, wait).status())
    if as_json:
        return typer.echo(json.dumps(found))
    table = Table(show_header=False, box=None)
    for name, value in found.items():
        text = ", ".join(value) if isinstance(value, tuple) else f"{value:,}" if type(value) is int else str(value)
        table.add_row(name.replace("_", " "), text)
    return Console().print(table)


@vault.command()
def log(where: Where, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Show the requests, their state and certificates."""
    opened = _open(where, None, wait)
    if as_json:
        return typer.echo(json.dumps([asdict(request) for request in opened.requests]))
    table = Table("request", "time (UTC)", "kind", "rows", "people", "state", "certificate", box=None)
    for request in opened.requests:
        path = opened.certificate_path(request.number)
        table.add_row(
            str(request.number),
            request.time[:19].replace("T", " "),
            request.kind,
            f"{request.rows:,}",
            f"{request.people:,}",
            request.state,
            path.name if path.exists() else "",
        )
    Console().print(table)
    return typer.echo(f"certificates: {opened.places.certificates}")


@vault.command()
def verify(where: Where, wait: Wait = 10.0, as_json: Json = False) -> None:
    """Train again from the surviving rows and compare; check every record and certificate."""
    opened = _open(where, None, wait)
    with _progress(as_json) as told:
        verdict = opened.verify(progress=told)
    if as_json:
        typer.echo(json.dumps({"ok": verdict.ok, **asdict(verdict)}))
    else:
        for check in verdict.checks:
            typer.secho(
                f"{'ok   ' if check.ok else 'WRONG'}  {check.name:13}{check.detail}", fg=None if check.ok else "red"
            )
    if not verdict.ok:
        wrong = ", ".join(check.name for check in verdict.checks if not check.ok)
        raise VerificationFailed(f"this vault does not fit: {wrong}")


@vault.command()
def schema(
    data: Data,
    target: Annotated[list[str], typer.Option(help="The column to predict.", show_default=False)],
    id_: Annotated[str | None, typer.Option("--id", help="The column of the ids.", show_default=False)] = None,
    people: Annotated[int, typer.Option(min=1, help="Name only categories that this many people have.")] = 10,
    as_json: Json = False,
) -> None:
    """Propose a schema for a table, to be edited: it was read from the data."""
    from ..vault.tables.proposal import propose

    text = propose(data, target=target, id=id_, people=people)
    typer.echo(json.dumps({"schema": text}) if as_json else text, nl=as_json)


@vault.command()
def key(
    where: Where,
    new: Annotated[bool, typer.Option("--new", help="Make a new pair in place of one that is lost.")] = False,
    wait: Wait = 10.0,
    as_json: Json = False,
) -> None:
    """Show the public keys of a vault, the newest first; make a new pair if the private key is lost."""
    opened = _open(where, None, wait)
    if new:
        opened.renew_key()
    names = opened.public_keys()
    _say({"keys": names, "file": opened.places.public}, f"{opened.places.public}: " + ", ".join(names), as_json)


@certificate.command("show")
def show_certificate(file: Annotated[Path, typer.Argument(help="A certificate.")], as_json: Json = False) -> None:
    """Show what a certificate says, without checking who signed it."""
    from ..vault.certificates import jws as certificates

    _show_payload(certificates.payload_of(certificates.read(file)), as_json)
    if not as_json:
        typer.echo("not checked: expunge certificate check tells whether the signature fits")


@certificate.command("check")
def check_certificate(
    file: Annotated[Path, typer.Argument(help="A certificate.")],
    public_key: Annotated[
        Path | None, typer.Option(help="The public key (PEM); default: the one beside the certificate's folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a certificate's signature, offline."""
    from ..vault.certificates import jws as certificates

    key = public_key or certificates.public_key_beside(file)
    _show_payload(certificates.checked(certificates.read(file), certificates.load_public(key)), as_json)
    if not as_json:
        typer.secho(f"the signature fits {key.name}", fg="green")


def _open(where: Path, key: Path | None, wait: float) -> "Vault":
    from ..vault import Vault

    opened = Vault.open(where, key=key, wait=wait)
    for note in opened.notes:
        typer.secho(f"note: {note}", err=True, fg="yellow")
    return opened


def _features(text: str) -> "FeatureMap | None":
    """Read ``fourier:300``, ``powers:3`` or ``identity``."""
    from .. import Powers, RandomFourier

    name, _, size = text.partition(":")
    if name in ("fourier", "powers") and size.isdecimal() and int(size):
        return RandomFourier(int(size)) if name == "fourier" else Powers(int(size))
    if text == "identity":
        return None
    raise InvalidSetting(f"features must be fourier:D, powers:D or identity, got {text!r}")


def _ids(ids: list[str] | None, ids_from: Path | None) -> list[str]:
    """The ids of options and of a file, one a line."""
    found = list(ids or ())
    if ids_from is not None:
        text = sys.stdin.read() if str(ids_from) == "-" else ids_from.read_text(encoding="utf-8-sig")
        found += [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        raise InvalidInput("name at least one id, with --id or --ids-from")
    return found


@contextmanager
def _progress(quiet: bool) -> Iterator["Told"]:
    """A bar on standard error, for people."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        bars: dict[str, Any] = {}

        def told(what: str, rows: int, of: int | None) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=of)
            progress.update(bars[what], advance=rows)

        yield told


def _show(receipt: "Receipt", text: str, as_json: bool) -> None:
    fields = asdict(receipt)
    said = text.format(
        request=receipt.request,
        rows=_counted(receipt.rows, "row", "rows"),
        people=_counted(receipt.people, "person", "people"),
        learners=_counted(receipt.learners, "learner", "learners"),
    )
    if receipt.seconds:
        said += f", in {receipt.seconds * 1e3:,.1f} ms"
    if receipt.seconds and receipt.earlier:
        said += f"\nsome were erased before, by requests {', '.join(map(str, receipt.earlier))}"
    where = receipt.path or ("in the ledger" if receipt.certificate else "not yet")
    try:
        _say(fields, f"{said}\nrequest {receipt.request}, certificate: {where}", as_json)
    except OSError as error:  # a script must not take a lost answer for a refusal
        raise AnswerLost(
            f"request {receipt.request} was carried out, but the answer could not be written: {error.strerror}"
        ) from error
    for note in receipt.notes:
        typer.secho(f"note: {note}", err=True, fg="yellow")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _show_payload(payload: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        return typer.echo(json.dumps(payload))
    table = Table(show_header=False, box=None)
    for name, value in payload.items():
        if name == "iat":
            value = datetime.fromtimestamp(value, UTC).isoformat()
        table.add_row(name.replace("_", " "), "\n".join(value) if isinstance(value, list) else str(value))
    return Console().print(table)


def _say(fields: Mapping[str, Any], text: str, as_json: bool) -> None:
    typer.echo(json.dumps(fields, default=str) if as_json else text)
