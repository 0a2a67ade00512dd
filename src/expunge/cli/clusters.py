"""Options of commands that several processes or machines can share: a cluster of our own, or one that is joined."""

import logging
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import terminal
from .arguments import Parser, UsageError, whole


def add_cluster(parser: Parser) -> None:
    """Who helps."""
    parser.add_argument(
        "--workers", metavar="NUMBER", type=whole(1, 10_000), help="Start so many processes that share the work."
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="Share the work with a Dask cluster, such as tls://host:8786."
    )
    for name, what in (("ca", "certificate authority"), ("cert", "own certificate"), ("key", "key of --tls-cert")):
        parser.add_argument(f"--tls-{name}", metavar="FILE", type=Path, help=f"The {what} (PEM), for --dask tls://.")
    text = "Let --dask be a scheduler on another machine without TLS: anybody on the network can run code there."
    parser.add_argument("--insecure", action="store_true", help=text)


def check_cluster(args: Namespace) -> None:
    """Refuse options that cannot work, before anything that takes time."""
    if args.dask is None and (args.insecure or args.tls_ca or args.tls_cert or args.tls_key):
        raise UsageError("--tls-ca, --tls-cert, --tls-key and --insecure go with --dask")
    if args.workers is not None and args.dask is not None:
        raise UsageError("--workers starts a cluster and --dask joins one: give one of them")
    if args.dask is not None:
        _engine().security_for(args.dask, **_tls(args))
    elif args.workers is not None:
        _engine()


@contextmanager
def cluster(args: Namespace) -> Iterator[Any]:
    """Yield the cluster that options name, or None."""
    check_cluster(args)
    if args.workers is None and args.dask is None:
        yield None
        return
    with _chosen(args) as found:
        yield found
        if found.lost:
            lost = terminal.counted(found.lost, "worker was", "workers were")
            terminal.note(f"{lost} lost; others did their work again")


def _chosen(args: Namespace) -> Any:
    if args.workers is not None:
        return _engine().own_cluster(args.workers)
    return _engine().joined_cluster(args.dask, **_tls(args))


def _tls(args: Namespace) -> dict[str, Any]:
    return {"ca": args.tls_ca, "cert": args.tls_cert, "key": args.tls_key, "insecure": args.insecure}


def _engine() -> Any:
    try:
        from ..distributed import engine
    except ImportError as error:
        raise UsageError(f"workers need {error.name}, which is not installed: pip install 'expunge[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # what it means is told in one line
    warnings.filterwarnings("ignore", module="distributed")
    return engine
