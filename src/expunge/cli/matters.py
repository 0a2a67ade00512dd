"""``expunge matter``: legal holds. A running service applies each change within a second."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import (
    Parser,
    UsageError,
    actor,
    add_actor,
    add_command,
    add_command_group,
    add_ids,
    add_vault,
    open_queue,
    open_vault,
    read_ids,
)
from .receipts import similar_hint

if TYPE_CHECKING:
    from ..server.matters import Author, Matter, MatterAddition, Matters
    from .arguments import Commands

_COLUMNS = ("name", "reason", "opened", "by", "people", "requests", "review", "released")


def register(commands: "Commands") -> None:
    """Add the commands of this module."""
    add_command_group(
        commands, "matter", "Manage matters (legal holds): their people are not erased.", _register_matter_commands
    )


def _register_matter_commands(commands: "Commands") -> None:
    add_command(commands, open_matter, _add_name, _add_reason, _add_review, add_ids, _add_actor, add_vault, name="open")
    add_command(commands, add, _add_name, add_ids, _add_actor, add_vault)
    add_command(commands, review, _add_name, _add_review, _add_actor, add_vault)
    add_command(commands, list_matters, _add_released, add_vault, name="list")
    add_command(commands, show, _add_name, add_vault)
    add_command(commands, find, add_ids, add_vault)
    add_command(commands, release, _add_name, _add_reason, _add_confirm, add_ids, _add_actor, add_vault)


def _add_name(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="The matter's name, or its id.")


def _add_reason(parser: Parser) -> None:
    text = "The reason; it is stored permanently, so do not include names or ids of people."
    parser.add_argument("--reason", metavar="TEXT", required=True, help=text)


def _add_review(parser: Parser) -> None:
    text = "The date of the next review, such as 2027-01-31 (UTC); default: none."
    parser.add_argument("--review", metavar="DATE", type=_parse_date, help=text)


def _add_actor(parser: Parser) -> None:
    add_actor(parser, "The person who makes the change; stored in the matter's log")


def _add_released(parser: Parser) -> None:
    parser.add_argument("--released", action="store_true", help="List released matters instead of active ones.")


def _add_confirm(parser: Parser) -> None:
    text = "The matter's name, to confirm; without it, nothing is released and the effect is shown."
    parser.add_argument("--confirm", metavar="NAME", help=text)


def open_matter(args: Namespace) -> None:
    """Open a matter: its people are not erased until it is released."""
    ids = read_ids(args) if args.id or args.ids_from else []
    with _open_matters(args) as matters:
        _print_added(args, matters.open(args.name, args.reason, args.review, _author(args), ids))


def add(args: Namespace) -> None:
    """Add people to a matter."""
    ids = read_ids(args)
    with _open_matters(args) as matters:
        _print_added(args, matters.add_people(matters.find(args.name).id, ids, _author(args)))


def review(args: Namespace) -> None:
    """Set or remove the date of a matter's next review."""
    with _open_matters(args) as matters:
        matter = matters.set_review(matters.find(args.name).id, args.review, _author(args))
    if args.json:
        terminal.say_json(_view_matter(matter))
    else:
        terminal.say(f"review: {'-' if matter.review is None else f'{matter.review:%Y-%m-%d}'}")


def list_matters(args: Namespace) -> None:
    """List the active matters, or the released ones."""
    with _open_matters(args) as matters:
        listed = matters.list_all(released=args.released)
    if args.json:
        terminal.say_json([_view_matter(matter) for matter in listed])
    else:
        terminal.say(terminal.format_table([_COLUMNS, *(_format_cells(matter) for matter in listed)]))


def show(args: Namespace) -> None:
    """Show a matter, the requests that it blocks, and its log."""
    from ..server.clocks import format_time

    with _open_matters(args) as matters:
        matter = matters.find(args.name)
        waiting, log = matters.waiting_jobs(matter.id), matters.log(matter.id)
    if args.json:
        terminal.say_json(_view_matter(matter) | {"waiting": waiting, "log": [entry.view() for entry in log]})
        return
    terminal.say(terminal.format_table(list(zip(_COLUMNS, _format_cells(matter), strict=True))))
    for job in waiting:
        terminal.say(f"blocked: {job}")
    lines = [
        (format_time(entry.time), entry.what, entry.actor or "-", f"{entry.people:,}", entry.reason) for entry in log
    ]
    terminal.say(terminal.format_table([("time", "what", "by", "people", "reason"), *lines]))


def find(args: Namespace) -> None:
    """Show which matters include each id."""
    ids = read_ids(args)
    with _open_matters(args) as matters:
        matters_by_id = matters.find_by_people(ids)  # a list of matters per id
    if args.json:
        terminal.say_json([[_view_matter(matter) for matter in listed] for listed in matters_by_id])
        return
    lines = [
        (id_, ", ".join(matter.name for matter in listed) or "-")
        for id_, listed in zip(ids, matters_by_id, strict=True)
    ]
    terminal.say(terminal.format_table([("id", "matters"), *lines]))


def release(args: Namespace) -> None:
    """Release a matter, or only some of its people; requests that it blocked run after their window."""
    ids = read_ids(args) if args.id or args.ids_from else []
    with _open_matters(args) as matters:
        matter = matters.find(args.name)
        plan = matters.preview_release(matter.id, ids)
        if args.confirm is None:
            raise UsageError(f"{plan.text}; to release it, add --confirm with the matter's name")
        matter = matters.release(matter.id, args.confirm, args.reason, _author(args), ids)
        matters.wipe()
    if args.json:
        terminal.say_json(_view_matter(matter) | {"plan": plan.view()})
    else:
        terminal.say(f"released: {plan.text}")


@contextmanager
def _open_matters(args: Namespace) -> "Iterator[Matters]":
    from ..server.matters import Matters

    vault = open_vault(args)
    with open_queue(vault) as database:
        yield Matters(vault, database)


def _author(args: Namespace) -> "Author":
    from ..server.matters import Author

    return Author(actor(args))


def _print_added(args: Namespace, added: "MatterAddition") -> None:
    if args.json:
        counts = {"added": added.people, "present": added.present, "erased": added.erased, "unknown": added.unknown}
        terminal.say_json(_view_matter(added.matter) | counts | {"similar": added.similar})
        return
    terminal.say(
        f"on hold: {terminal.pluralize(added.matter.people, 'person', 'people')}, {added.people:,} of them new"
    )
    if added.erased:
        terminal.note(
            f"{terminal.pluralize(added.erased, 'of these people was', 'of these people were')} erased before"
        )
    if added.unknown:
        unknown = terminal.pluralize(added.unknown, "of these ids is", "of these ids are")
        terminal.note(f"{unknown} not known here: check the spelling")
        for hint in similar_hint(added.similar):
            terminal.note(hint)


def _view_matter(matter: "Matter") -> dict[str, Any]:
    from ..server.clocks import utc_now

    return matter.view(utc_now())


def _format_cells(matter: "Matter") -> tuple[str, ...]:
    days = [None if day is None else f"{day:%Y-%m-%d}" for day in (matter.opened, matter.review, matter.released)]
    opened, review_day, released = (day or "-" for day in days)
    counts = (f"{matter.people:,}", f"{matter.requests:,}")
    return matter.name, matter.reason, opened, matter.actor or "-", *counts, review_day, released


def _parse_date(text: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        raise ArgumentTypeError(f"must be a date such as 2027-01-31, got {text!r}") from None
