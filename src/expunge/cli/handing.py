"""Handing out: receipts for people, a file each, that ``--receipts`` and ``expunge receipts`` write.

A file is named after the request and the person's commitment: the name tells nothing, and no two people share one.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import terminal
from .arguments import Parser, UsageError, add_attest, add_ids, add_key, add_vault, command, ids, opened, whole
from .receipts import similar_hint
from .terminal import counted

if TYPE_CHECKING:
    from ..vault import PersonalReceipt, Vault
    from .arguments import Commands

_SHOWN = 20  # people whose files are named one by one
_UNKNOWN = "unknown"  # the state of an id, and the kind of the statement about it


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    command(commands, receipts, add_ids, _add_request, add_attest, add_key, add_vault)


def _add_request(added: Parser) -> None:
    text = "The request that they are of; default: for each id the one that erased it."
    added.add_argument("--request", metavar="NUMBER", type=whole(1), help=text)
    added.add_argument("--receipts", metavar="DIR", type=Path, required=True, help="The folder for the receipts.")


def receipts(args: Namespace) -> None:
    """Write the receipts of people again; nothing is changed."""
    wanted, unknown, vault, handed = ids(args), list[str](), opened(args), Handed(args)
    if args.attest_unknown:
        wanted, unknown, handed.similar = told_apart(vault, wanted)
    if wanted:
        handed.hand(lambda: vault.personal_receipts(wanted, request=args.request), lost=False)
    if unknown:
        handed.hand(lambda: vault.attest_unknown(unknown), lost=False)
    handed.show(args)


def told_apart(vault: "Vault", wanted: Sequence[str]) -> tuple[list[str], list[str], int]:
    """The ids that a vault holds or has erased, and those that it does not know, each once.

    The third part is for how many of the unknown ids it has a similar one.
    """
    held = dict(zip(wanted, vault.holds(wanted), strict=True))
    known, unknown = ([one for one in held if (held[one].state == _UNKNOWN) is state] for state in (False, True))
    return known, unknown, sum(holding.similar for holding in held.values())


class Written(NamedTuple):
    """A receipt that was written."""

    id: str  # as it was given
    file: Path
    kind: str


class Handed:
    """Receipts that were written to a folder, if there is one to write to."""

    def __init__(self, args: Namespace) -> None:
        self._folder: Path | None = args.receipts
        self._written, self.problem = list[Written](), ""
        self.similar = 0  # unknown ids of which a similar one is in the vault
        attests = getattr(args, "attest_unknown", False)
        self._again = "expunge receipts --attest-unknown" if attests else "expunge receipts"
        if self._folder is not None:  # before anything is changed: a folder that cannot be loses no answer then
            try:
                self._folder.mkdir(0o700, exist_ok=True, parents=True)
            except (FileExistsError, NotADirectoryError):
                raise UsageError(f"--receipts names a folder, and {self._folder} cannot be one") from None

    def hand(
        self, made: "Callable[[], Mapping[str, PersonalReceipt]]", *, lost: bool = True, request: int | None = None
    ) -> None:
        """Write receipts; what goes wrong is told after the answer, because the request was carried out."""
        from ..errors import ExpungeError
        from ..saving import files
        from ..saving.drafts import drafted

        if self._folder is None or self.problem:
            return
        try:
            from ..vault.certificates import jws

            for one, receipt in made().items():
                path = self._folder / f"{receipt.request:06}-{receipt.name}.json"
                with drafted(path) as new:
                    files.write_all(new.fd, receipt.to_json().encode(), 0)
                    new.commit()
                self._written.append(Written(one, path, jws.unchecked(receipt.certificate)["kind"]))
        except (ExpungeError, OSError, MemoryError, ImportError) as error:
            if not lost:
                raise
            again = self._again if request is None else f"{self._again} --request {request}"
            self.problem = f"the receipts could not be written: {error}; {again} makes them again"

    def fields(self) -> dict[str, Any]:
        """For JSON; nothing if no receipts were asked for."""
        if self._folder is None:
            return {}
        return {"receipts": [one._asdict() for one in self._written]}

    def lines(self) -> list[str]:
        """For people."""
        where = terminal.escaped(str(self._folder))
        unknown = [one for one in self._written if one.kind == _UNKNOWN]
        known = [one for one in self._written if one.kind != _UNKNOWN]
        one = f"id is not known here: a signed statement in {where} says so, nothing of it was erased"
        many = f"ids are not known here: signed statements in {where} say so, nothing of them was erased"
        return [*_listed(known, f"receipt in {where}", f"receipts in {where}"), *_listed(unknown, one, many)]

    def show(self, args: Namespace, *first: str, **fields: Any) -> None:
        """Print what was written, where that is the whole answer but for a first line, or other fields."""
        if args.json:
            terminal.say_json(fields | self.fields())
        else:
            terminal.say("\n".join([*first, *self.lines(), *similar_hint(self.similar)]))


def _listed(written: Sequence[Written], one: str, many: str) -> list[str]:
    """How many were written, and whose is which if they are few."""
    if not written:
        return []
    told = counted(len({each.file for each in written}), one, many)
    if len(written) > _SHOWN:
        return [told]
    return [told, terminal.table([(f"  {each.id}", each.file.name) for each in written])]
