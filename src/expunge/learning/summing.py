"""Summing: the moments of every learner, from rows that are read once, block by block.

The moments of disjoint stripes add up to those of all, exactly and in any order: whoever has rows can sum a range of
stripes, in a thread, in another process or on another machine.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from ..encoding.encoder import Encoder
from ..exact.arrays import AT_ONCE, WHOLE, Part
from ..exact.moments import Moments
from ..exact.tally import Room, Tally
from ..exact.threads import one_blas_thread, spread
from ..stores.change import Change
from ..stores.store import Store


def moments_of(
    encoder: Encoder, store: Store, stripes: range, change: Change | None = None, learners: Sequence[int] | None = None
) -> list[Moments]:
    """The moments of learners (None: of all) over some stripes, as they are or will be after a change in order."""
    wanted = range(encoder.code.learners) if learners is None else learners
    tallies = {j: Tally(encoder.width) for j in wanted}
    for block in pieces(stripes, at_once(encoder, store)):
        rows = store.stripes(encoder.code.shards, block, change)
        for j, tally in tallies.items():
            add_shard(tally, encoder, rows, j)
    return [Moments.of(tally, last=True) for tally in tallies.values()]


def pieces(stripes: range, at_once: int) -> Iterator[range]:
    """Cut stripes where whole multiples of ``at_once`` are."""
    cuts = range(stripes.start // at_once * at_once, stripes.stop, at_once)
    return (range(max(stripes.start, first), min(first + at_once, stripes.stop)) for first in cuts)


def summed_stripes(encoder: Encoder, store: Store, stripes: range, change: Change | None = None) -> list[Moments]:
    """The moments of every learner over some stripes, by others or by threads of this process."""
    change = None if change is None else change.in_order()
    if (known := store.summed(encoder, stripes, change)) is not None:
        return known
    blocks = list(pieces(stripes, at_once(encoder, store)))

    def part(k: int, n: int) -> list[Moments]:
        mine = blocks[len(blocks) * k // n : len(blocks) * (k + 1) // n]
        return moments_of(encoder, store, range(mine[0].start, mine[-1].stop), change)

    with one_blas_thread():
        return added(spread(part, len(blocks)))


def at_once(encoder: Encoder, store: Store) -> int:
    """Stripes whose rows are read together."""
    return store.at_once(encoder) or max(1, AT_ONCE // encoder.code.shards)


def added(parts: Iterable[list[Moments]]) -> list[Moments]:
    """Add the moments of disjoint stripes, learner by learner."""
    return reduce(lambda total, more: [a.plus(b) for a, b in zip(total, more, strict=True)], parts)


def add_shard(
    tally: Tally, encoder: Encoder, store: Store, learner: int, change: Change | None = None, part: Part = WHOLE
) -> None:
    """Add the coded rows of a learner to a tally, or a share of them."""
    column, table = encoder.column(learner), store.table(encoder)
    if change is None and column is not None and table is not None:
        (k, n), shards = part, encoder.code.shards
        stripes = store.live.size // shards
        tally.add_stripes(column, table, shards, range(stripes * k // n, stripes * (k + 1) // n))
        return
    for block in store.shard(encoder, learner, change, part=part):
        tally.add(block.rows, block.members)


def tally_of(
    encoder: Encoder,
    store: Store,
    learner: int,
    change: Change | None,
    *,
    part: Part = WHOLE,
    room: Room | None = None,
) -> Tally:
    """The coded rows of a learner, summed, or a share of them."""
    tally = Tally(encoder.width, room)
    add_shard(tally, encoder, store, learner, change, part)
    return tally
