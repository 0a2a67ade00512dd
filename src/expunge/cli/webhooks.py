"""``expunge webhook``: which systems are told of requests, what was posted to them, and why it failed."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import Parser, add_hosts, add_vault, command, group, opened, whole

if TYPE_CHECKING:
    from ..server.hooks import Hooks
    from ..server.service import Service
    from .arguments import Commands

_FAILED = 1  # exit code of a test that did not arrive


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    group(commands, "webhook", "Webhooks: what was posted to other systems.", _register)


def _register(commands: "Commands") -> None:
    command(commands, list_, add_vault, name="list")
    command(commands, deliveries, _add_id, _add_filter, add_vault)
    command(commands, resend, _add_id, _add_delivery, add_vault)
    command(commands, test, _add_id, add_hosts, add_vault)


def _add_id(added: Parser) -> None:
    added.add_argument("id", help="The id of the webhook; expunge webhook list tells it.")


def _add_filter(added: Parser) -> None:
    added.add_argument("--state", choices=("waiting", "sent", "failed"), help="Only those in this state.")
    added.add_argument("--limit", metavar="N", type=whole(1), default=50, help="At most so many (default: 50).")


def _add_delivery(added: Parser) -> None:
    added.add_argument("delivery", type=whole(1), help="The number that expunge webhook deliveries tells.")


def list_(args: Namespace) -> None:
    """Tell which webhooks there are, and how many of their deliveries wait, arrived or failed."""
    from ..server.views import webhook_view

    with _service(args) as service:
        found = [webhook_view(one) | service.deliveries.counts(one.id) for one in service.hooks.every()]
    _show(args, found, ("id", "url", "events", "off", "waiting", "sent", "failed"))


def deliveries(args: Namespace) -> None:
    """Tell what was posted to a webhook in the last 30 days, the newest first, and why tries failed."""
    from ..server.views import delivery_view

    with _service(args) as service, _known(service) as hooks:
        found = service.deliveries.of_hook(hooks.get(args.id).id, state=args.state, limit=args.limit)
    _show(args, [delivery_view(one) for one in found], ("id", "event", "state", "reason", "answer", "tries", "next"))


def resend(args: Namespace) -> None:
    """Send a message again; the running service does it within a second, or the next one that starts."""
    from ..server.views import delivery_view

    with _service(args) as service, _known(service) as hooks:
        found = delivery_view(hooks.resend(args.id, args.delivery))
    if args.json:
        terminal.say_json(found)
    else:
        terminal.say(f"waits to be sent: {found['id']}")


def test(args: Namespace) -> int:
    """Post a test message to a webhook from here, once, and tell how that went."""
    from ..server.logs import leaving_out
    from ..server.views import delivery_view

    with _service(args, tuple(args.allow_host)) as service, _known(service) as hooks, leaving_out("error"):
        found = delivery_view(hooks.test(args.id))  # the answer says what a line of the log would
    arrived = found["state"] == "sent"
    if args.json:
        terminal.say_json(found)
    elif arrived:
        terminal.say(f"sent: answered {found['answer']}")
    else:
        answered = f" (answered {found['answer']})" if found["answer"] else ""
        terminal.say(f"failed: {found['detail']}{answered}")
    return 0 if arrived else _FAILED


@contextmanager
def _service(args: Namespace, allow_hosts: tuple[str, ...] = ()) -> Iterator["Service"]:
    """A service that is not started: its database is that of the one that runs."""
    from ..server.database import Database, queue_path
    from ..server.service import Options, Service

    vault = opened(args)
    database = Database(queue_path(vault.places.vault))
    try:
        yield Service(vault, database, Options(allow_hosts=allow_hosts))
    finally:
        database.close()


@contextmanager
def _known(service: "Service") -> Iterator["Hooks"]:
    from ..errors import UnknownId

    try:
        yield service.hooks
    except LookupError:
        raise UnknownId("there is no such webhook or delivery; expunge webhook list tells which there are") from None


def _show(args: Namespace, found: list[dict[str, Any]], heads: tuple[str, ...]) -> None:
    if args.json:
        terminal.say_json(found)
        return
    lines = [[_cell(one[name]) for name in heads] for one in found]
    terminal.say(terminal.table([heads, *lines]))


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return ",".join(value) if isinstance(value, list) else str(value)
