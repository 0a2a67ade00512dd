"""Handing out: receipts for people, a file each, that ``--receipts`` and ``expunge receipts`` write.

A file is named after the request and the person's commitment: the name tells nothing, and no two people share one.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import Parser, add_ids, add_key, add_vault, command, ids, opened, whole
from .terminal import counted

if TYPE_CHECKING:
    from ..vault import PersonalReceipt
    from .arguments import Commands

_SHOWN = 20  # people whose files are named one by one


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    command(commands, receipts, add_ids, _add_request, add_key, add_vault)


def _add_request(added: Parser) -> None:
    text = "The request that they are of; default: for each id the one that erased it."
    added.add_argument("--request", metavar="NUMBER", type=whole(1), help=text)
    added.add_argument("--receipts", metavar="DIR", type=Path, required=True, help="The folder for the receipts.")


def receipts(args: Namespace) -> None:
    """Write the receipts of people again; nothing is changed."""
    wanted, vault, handed = ids(args), opened(args), Handed(args.receipts)
    handed.hand(lambda: vault.personal_receipts(wanted, request=args.request), lost=False)
    handed.show(args)


class Handed:
    """Receipts that were written to a folder, if there is one to write to."""

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._files, self.problem = folder, dict[str, Path](), ""
        if folder is not None:  # before anything is changed: a folder that cannot be is no reason to lose an answer
            folder.mkdir(exist_ok=True, parents=True)

    def hand(self, made: "Callable[[], Mapping[str, PersonalReceipt]]", *, lost: bool = True) -> None:
        """Write receipts; what goes wrong is told after the answer, because the request was carried out."""
        from ..errors import ExpungeError
        from ..saving import files

        if self._folder is None or self.problem:
            return
        try:
            for one, receipt in made().items():
                path = self._folder / f"{receipt.request:06}-{receipt.name}.json"
                beside = path.with_name(f".{path.name}.new")
                files.wipe_draft(beside)
                with files.replacing(path, beside, shared=True) as new:
                    files.write_all(new.fd, receipt.to_json().encode(), 0)
                    new.commit()
                self._files[one] = path
        except (ExpungeError, OSError, MemoryError, ImportError) as error:
            if not lost:
                raise
            self.problem = f"the receipts could not be written: {error}; expunge receipts makes them again"

    def fields(self) -> dict[str, Any]:
        """For JSON; nothing if no receipts were asked for."""
        if self._folder is None:
            return {}
        return {"receipts": [{"id": one, "file": path} for one, path in self._files.items()]}

    def lines(self) -> list[str]:
        """For people."""
        if not self._files:
            return []
        told = f"{counted(len(self._files), 'receipt', 'receipts')} in {terminal.escaped(str(self._folder))}"
        if len(self._files) > _SHOWN:
            return [told]
        return [told, terminal.table([(f"  {one}", path.name) for one, path in self._files.items()])]

    def show(self, args: Namespace) -> None:
        """Print what was written, where that is the whole answer."""
        from ..errors import AnswerLost

        if self.problem:
            raise AnswerLost(self.problem)
        if args.json:
            terminal.say_json(self.fields())
        else:
            terminal.say("\n".join(self.lines()))
