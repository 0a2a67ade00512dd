"""Trials: a tiny vault, every command that it knows, and what must be true of it after something went wrong.

What a vault must hold is what the oracle says that was asked the same. Whatever went wrong, a vault is as it was before
a request or as it is after it. Nothing here knows how a vault does that.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from expunge import CodedRegressor, Powers
from expunge.errors import ExpungeError, InvalidFile, MissingData, Unfinished
from expunge.saving.files import SyncFailed
from expunge.vault import Vault, writer
from expunge.vault.certificates import notary
from expunge.vault.certificates.jws import SigningKey
from expunge.vault.disk import folder as folders
from expunge.vault.disk.people import hash_ids
from expunge.vault.requests import intake
from expunge.vault.requests import plan as plans
from expunge.vault.requests import request as requests

from support.disks import Crash, used
from support.faulty import Fault, Faulty
from support.forgetful import Operation, plant
from support.oracle import PLANNED, Oracle, Request, plain_slots_sum
from support.vaults import ANYTHING

NAME = "small.vault"
EVERYBODY = range(60)  # no id is outside


@dataclass(frozen=True)
class State:
    """What a vault holds, as far as it can be told from outside."""

    digest: str
    rows: frozenset[tuple[int, int]]  # an id, and how many rows it has
    slots: frozenset[int]  # in use
    erased: frozenset[int]
    answer: tuple[float, ...]  # to a question


NOTHING = State("", frozenset(), frozenset(), frozenset(), ())  # no vault yet
QUESTION = np.array([[0.25, 0.5], [0.75, 0.5]])


def expected(oracle: Oracle) -> State:
    """What a vault must hold."""
    answer = tuple(oracle.predict(QUESTION).tolist())
    rows, slots = frozenset(oracle.counts.items()), frozenset(oracle.slots)
    return State(oracle.digest(), rows, slots, frozenset(oracle.erased), answer)


def state_of(vault: Vault) -> State:
    """What a vault does hold."""
    digest, identity, people = vault.digest(), vault._writer.identity, vault._writer.snapshot.people
    entries = people.find(hash_ids(identity.key, [str(one).encode() for one in EVERYBODY]))
    rows = Counter(entries.live.owner.tolist())
    answer = tuple(vault.predict(QUESTION).tolist())
    slots = frozenset(entries.live.slot.tolist())
    manifest, bits = vault._writer.snapshot.manifest, Path(vault._writer.snapshot.rows.bits_file)
    assert manifest.slots_sum == plain_slots_sum(slots, manifest.seal)
    assert slots == set(np.flatnonzero(np.unpackbits(np.frombuffer(bits.read_bytes(), dtype=np.uint8))).tolist())
    return State(digest, frozenset(rows.items()), slots, frozenset(entries.tombstones.owner.tolist()), answer)


BOUNDS = ["declared", "observed"]
OLD_COPIES = {
    "trained": "old copy",
    "rebounded": "old copy with old bounds",
    "replanned": "old copy with an old plan",
}  # scenes with the folder as it was first


class World:
    """The vaults that commands are tried on, made once and copied for each trial.

    With declared bounds a request touches the learners of its rows; with observed ones a bound may move, and then all
    of them are learned anew.
    """

    def __init__(self, bounds: str, place: Path) -> None:
        self.place, self.bounds = place, bounds
        self._fresh, self._states = count(), {}
        self.looked: dict[object, State] = {}
        self.checked: set[object] = set()
        (self.place / "nothing").mkdir()
        Trial.keys = count(1)  # none that a trial will make: a draft of a key that is known already is put in place
        self._make()

    def model(self, seed: int) -> CodedRegressor:
        given = {"bounds": (0, 1), "target_bounds": "unit", "features": Powers(2)} if self.bounds == "declared" else {}
        return CodedRegressor(shards=4, rate=2, random_state=seed, **given)

    @cached_property
    def requests(self) -> dict[str, Request]:
        wide = 1.0 if self.bounds == "declared" else 2.0  # what comes later moves the bounds, where they may
        wider, widest = (
            (Request.rebound(x0=(-0.5, 1.5), x1=None), Request.rebound(x0=None, x1=(0.0, 2.0)))
            if self.bounds == "declared"
            else (Request.rebound(x0=(-1.0, 3.0), y=(0.0, 2.0)), Request.rebound(x1=(-0.5, 2.0), y=None))
        )
        return {
            "first": Request.drawn("train", 0, [k % 20 for k in range(24)]),
            "gone": Request("unlearn", (5,)),
            "second": Request.drawn("add", 1, [20, 21], wide),
            "right": Request.drawn("rectify", 2, [6]),
            "more": Request.drawn("add", 3, [30, 31, 31], wide),
            "both": Request("unlearn", (0, 9)),
            "back": Request("readmit", (5,)),
            "righter": Request.drawn("rectify", 4, [1, 7, 1], wide),
            "new": Request.drawn("train", 5, [*range(12), 3, 40, 41, 40], wide),
            "wider": wider,
            "widest": widest,
            "replan": Request("replan"),
        }

    def _make(self) -> None:
        """Four requests, then copies: with the key lost, with other bounds, with the folder as of the first request."""
        names = ("trained", "keyless", "rebounded", "replanned")
        trained, keyless, rebounded, replanned = (self.place / name for name in names)
        trained.mkdir()
        vault, oracle = self.create(trained), Oracle.of(self.model(0))
        self.oracles = {"nothing": oracle}
        shutil.copytree(trained / NAME, self.place / "first")
        vault.backup(self.place / "first backup")
        for name in ("first", "gone", "second", "right"):
            if name != "first":
                self.requests[name].ask(vault)
            oracle = oracle.after(self.requests[name])
        shutil.copytree(trained, keyless)
        (keyless / NAME).with_suffix(".key").unlink()
        Vault.open(keyless / NAME).unlearn([8])
        shutil.copytree(trained, rebounded)
        self.requests["wider"].ask(Vault.open(rebounded / NAME))
        shutil.copytree(trained, replanned)
        self.requests["replan"].ask(Vault.open(replanned / NAME))
        self.oracles |= {"trained": oracle, "replanned": oracle.after(self.requests["replan"])}
        self.oracles |= {"keyless": oracle.after(Request("unlearn", (8,)))}
        self.oracles["rebounded"] = oracle.after(self.requests["wider"])
        for scene, old in OLD_COPIES.items():
            shutil.copytree(self.place / scene, self.place / old, ignore=shutil.ignore_patterns(NAME))
            shutil.copytree(self.place / "first", self.place / old / NAME)
            self.oracles[old] = self.oracles[scene]
        alone, ledger = self.place / "backup", self.place / "backup and ledger"
        alone.mkdir()
        vault.backup(alone / "saved", with_key=True)
        shutil.copytree(trained, ledger, ignore=shutil.ignore_patterns(NAME))
        shutil.copytree(self.place / "first backup", ledger / "saved")
        self.oracles |= {"backup": oracle, "backup and ledger": oracle}

    def create(self, root: Path, name: str = "first", *, seed: int = 0, **options: Any) -> Vault:
        data = self.requests[name].table
        described = {"target": "y", "id": "who", "model": self.model(seed), "planning": PLANNED}
        return Vault.create(root / NAME, data, **described, **options)

    def copy(self, scene: str) -> Path:
        """A scene in a folder of its own."""
        return Path(shutil.copytree(self.place / scene, self.fresh()))

    def states(self, command: "Command") -> tuple[State, State]:
        """Before a command and after it."""
        if command.name not in self._states:
            self._states[command.name] = command.before(self), command.after(self)
        return self._states[command.name]

    def fresh(self) -> Path:
        """A name that is free."""
        return self.place / f"trial {next(self._fresh)}"


@dataclass(frozen=True, eq=False)
class Command:
    """Something to ask of a vault."""

    name: str
    run: Callable[[World, Path, Any], Any]  # in this folder, with this open vault if `opens`
    then: Callable[[World, Oracle], Oracle] = lambda world, oracle: oracle  # what it leads to
    scene: str = "trained"
    opens: bool = True  # whether it is asked of a vault that is open
    meanwhile: Callable[[Path], Any] | None = None  # what another does once it is open
    repeats: bool = True  # whether to ask again for what was done is fine, and changes nothing

    def before(self, world: World) -> State:
        if not (world.place / self.scene / NAME).exists():
            return NOTHING
        if self.scene in OLD_COPIES.values() or self.meanwhile:  # that copy, or what is open, never counts again
            return self.after(world)
        return expected(world.oracles[self.scene])

    def after(self, world: World) -> State:
        return expected(self.then(world, world.oracles[self.scene]))

    def __str__(self) -> str:
        return self.name


def _asked(name: str) -> Callable[[World, Path, Any], Any]:
    return lambda world, _, vault: world.requests[name].ask(vault)


def _after(name: str) -> Callable[[World, Oracle], Oracle]:
    return lambda world, oracle: oracle.after(world.requests[name])


def _replaced(world: World, oracle: Oracle) -> Oracle:
    """A new training is of its own rows alone, without those of who was erased."""
    return oracle.trained_with(world.model(1)).after(world.requests["new"])


def _restored(world: World, oracle: Oracle, scene: str) -> Oracle:
    """What is left of the rows, with settings that are chosen anew for them if a replan was missed."""
    left = oracle.without([6, 20, 21])
    return left.after(world.requests["replan"]) if scene == OLD_COPIES["replanned"] else left


def _merged(world: World, root: Path, vault: Vault) -> None:
    """As many segments as there may be: the next batch makes one of all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "MAX_SEGMENTS", 2)
        world.requests["more"].ask(vault)


def _listed(ask: Callable[[World, Path, Any], Any]) -> Callable[[World, Path, Any], Any]:
    """A request whose slots and people are kept beside the ledger, as those of thousands are."""

    def run(world: World, root: Path, vault: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(requests, "MAX_INLINE_ENTRIES", 0)
            return ask(world, root, vault)

    return run


COMMANDS = [
    Command(
        "create",
        lambda world, root, _: world.create(root),
        _after("first"),
        scene="nothing",
        opens=False,
        repeats=False,
    ),
    Command(
        "replace",
        lambda world, root, _: world.create(root, "new", seed=1, replace=True, skip_erased=True, **ANYTHING),
        _replaced,
        opens=False,
    ),
    Command("add", _asked("more"), _after("more"), repeats=False),
    Command("add and merge", _merged, _after("more"), repeats=False),
    Command("rectify", _asked("righter"), _after("righter")),
    Command("unlearn", _asked("both"), _after("both")),
    Command("unlearn a list", _listed(_asked("both")), _after("both")),
    Command("readmit", _asked("back"), _after("back"), repeats=False),
    Command("rebound", _asked("wider"), _after("wider")),
    Command("replan", _asked("replan"), _after("replan")),
    Command("rebound again", _asked("widest"), _after("widest"), scene="rebounded"),
    # Erased since the copy was made: 5. Corrected since, so gone: 6. Added since, so missing: 20 and 21.
    *(
        Command(
            f"restore {scene}",
            lambda _, root, __: Vault.open(root / NAME),
            partial(_restored, scene=scene),
            scene=scene,
            opens=False,
        )
        for scene in OLD_COPIES.values()
    ),
    Command(
        "restore a list",
        _listed(lambda _, root, __: Vault.open(root / NAME)),
        lambda _, oracle: oracle.without([6, 20, 21]),
        scene="old copy",
        opens=False,
    ),
    Command("renew_key", lambda _, __, vault: vault.renew_key(), scene="keyless"),
    Command("change_key", lambda _, __, vault: vault.renew_key()),
    Command("open", lambda _, root, __: Vault.open(root / NAME), opens=False),
    Command(
        "predict",
        lambda _, __, vault: vault.predict(QUESTION),
        _after("both"),
        meanwhile=lambda root: Vault.open(root / NAME).unlearn([0, 9]),
    ),
    Command("verify", lambda _, __, vault: vault.verify()),
]
COPIES = [
    Command("clone", lambda _, root, vault: vault.clone(root / "other.vault"), repeats=False),
    Command("backup", lambda _, root, vault: vault.backup(root / "copy"), repeats=False),
    Command(
        "restore without a ledger",
        lambda _, root, __: Vault.restore(root / "saved", root / NAME, erased=[0, 9, 55]),
        lambda world, oracle: replace(after := oracle.after(world.requests["both"]), erased={**after.erased, 55: 6}),
        scene="backup",
        opens=False,
        repeats=False,
    ),
    Command(
        "restore a list without a ledger",
        _listed(lambda _, root, __: Vault.restore(root / "saved", root / NAME, erased=[0, 9])),
        _after("both"),
        scene="backup",
        opens=False,
        repeats=False,
    ),
    Command(
        "restore beside the ledger",
        lambda _, root, __: Vault.restore(root / "saved", root / NAME),
        lambda _, oracle: oracle.without([6, 20, 21]),
        scene="backup and ledger",
        opens=False,
        repeats=False,
    ),
]
REQUESTS = [command for command in COMMANDS if command.name not in ("open", "predict", "verify")]


@contextmanager
def repeatable() -> Iterator[None]:
    """Let nothing be drawn and no time pass: who does the same to the same disk leaves the same bytes."""

    def generated(cls: type[SigningKey]) -> SigningKey:
        return cls(Ed25519PrivateKey.from_private_bytes(next(Trial.keys).to_bytes(32)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans.secrets, "token_bytes", lambda size: bytes([7]) * size)
        patch.setattr(folders.uuid, "uuid4", lambda: UUID(int=7))
        patch.setattr(SigningKey, "generate", classmethod(generated))
        for room in (writer, notary):
            patch.setattr(room, "current_time", lambda: "2026-01-01T00:00:00+00:00")
        yield


class Trial:
    """A command on a disk that may fail, and what must be true whatever happened."""

    keys = count(1)  # that are made when nothing is drawn; each world and each trial begin anew

    def __init__(self, world: World, command: Command, root: Path | None = None) -> None:
        Trial.keys = count(1000)
        self.world, self.command = world, command
        self.root = world.copy(command.scene) if root is None else root
        self.disk = Faulty(self.root)
        self.before, self.after = world.states(command)
        self.vault: Vault | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root)

    def run(self, fault: Fault | None = None) -> "Trial":
        """Open the vault, if that is not the command itself, then carry the command out on a disk with a fault."""
        with used(self.disk):
            self.vault = Vault.open(self.root / NAME) if self.command.opens else None
            if self.command.meanwhile:
                self.command.meanwhile(self.root)
            self.disk.arm(fault)
            try:
                self.command.run(self.world, self.root, self.vault)
            except (Exception, Crash) as error:
                self.error = error
        return self

    def recover(self, fault: Fault | None = None) -> "Trial":
        """Once the process is gone, another takes up the vault, on a disk with a fault."""
        self.vault, self.error = None, Crash()
        with used(self.disk), suppress(ExpungeError, OSError, Crash):
            self.disk.arm(fault)
            self.world.create(self.root) if self.command.scene == "nothing" else Vault.open(self.root / NAME)
        return self

    def again(self) -> "Trial":
        """Another trial of what this one left when its process ended, on a copy of its disk."""
        copied = Trial(self.world, self.command, shutil.copytree(self.root, self.world.fresh()))
        copied.disk.top, copied.error = deepcopy(self.disk.top), Crash()
        return copied

    def power_cut(self, seed: int | None = None) -> "Trial":
        """What a power cut leaves, on another disk."""
        cut = Trial(self.world, self.command, plant(self.disk.left(seed), self.world.fresh()))
        cut.error = Crash()
        return cut

    @property
    def lost_a_sync(self) -> bool:
        return any(isinstance(error, SyncFailed) for error in (self.error, getattr(self.error, "__cause__", None)))

    @property
    def allowed(self) -> set[State]:
        """The states that are right after what the command answered: who says that it refused has changed nothing."""
        if self.error is None or isinstance(self.error, Unfinished):
            return {self.after}
        return {self.before, self.after} if isinstance(self.error, Crash) else {self.before}

    @property
    def allowed_without_power(self) -> set[State]:
        """The same after a power cut, which takes an acceptance that could not be synced."""
        return {self.before, self.after} if self.lost_a_sync else self.allowed

    def check_once(self, seeds: Sequence[int] = ()) -> None:
        """The same as `check` after the end of a process, unless a disk just like this one was checked before."""
        assert isinstance(self.error, Crash)
        seen = self.command.name, tuple(seeds), self.disk.state()
        if seen not in self.world.checked:
            self.check(seeds)
            self.world.checked.add(seen)

    def check(self, seeds: Iterable[int] = ()) -> None:
        """All that must be true after a fault, also if the power fails at once (with each seed, by another chance)."""
        assert isinstance(self.error, ExpungeError | OSError | Crash | None), repr(self.error)
        assert self.error is None or str(self.error)
        with used(self.disk):
            self.check_prediction()
            self.disk.heal()
            self.check_handle()
        for seed in (None, *seeds):
            self.check_power_cut(self.allowed_without_power, seed=seed)
        with used(self.disk):
            state = settled(self.root, self.allowed)
        self.check_power_cut({state})
        with used(self.disk):
            self.ask_again(state)
            settled(self.root, {self.after}, certified=True)
        self.check_power_cut({self.after}, certified=True)

    def check_prediction(self) -> None:
        """Whatever is wrong with the disk: no answer, or one from a state that counts. If it is full, an answer."""
        if self.vault is None or isinstance(self.error, Crash):
            return
        full = self.disk.fault is not None and self.disk.fault.kind == "full"
        try:
            answer = tuple(self.vault.predict(QUESTION).tolist())
        except (ExpungeError, OSError):
            assert not full or self.allowed != {self.before}
        else:
            assert answer in {state.answer for state in self.allowed}

    def check_handle(self) -> None:
        """Whoever saw a sync fail writes no more; else the same vault goes on, as if nothing had happened."""
        if self.vault is None or isinstance(self.error, Crash):
            return
        if self.lost_a_sync:
            with pytest.raises(Unfinished, match="open the vault again"):
                self.vault.unlearn([2])
        else:
            assert state_of(self.vault) in self.allowed

    def check_power_cut(self, allowed: set[State], *, certified: bool = False, seed: int | None = None) -> None:
        """What a power cut at this moment leaves is one of these states, too. (Many leave the same: one look does.)"""
        if self.disk.lasts:
            return
        looked = sha256(repr(self.disk.left(seed)).encode()).digest(), certified
        if looked not in self.world.looked:
            with self.power_cut(seed) as cut, used(cut.disk):
                self.world.looked[looked] = settled(cut.root, allowed, certified=certified)
        assert self.world.looked[looked] in allowed

    def ask_again(self, state: State) -> None:
        """Ask for what was not done; what was done and may be repeated changes nothing."""
        if state != self.after or self.command.repeats:
            vault = Vault.open(self.root / NAME) if self.command.opens else None
            self.command.run(self.world, self.root, vault)


def settled(root: Path, allowed: set[State], *, certified: bool = False) -> State:
    """Take up the vault that is there and look at everything."""
    try:
        vault = Vault.open(root / NAME)
    except (MissingData, InvalidFile):
        if NOTHING not in allowed:
            raise
        return NOTHING
    verdict = vault.verify()
    assert verdict.ok, verdict
    state = state_of(vault)
    assert state in allowed
    assert not certified or not vault.status().uncertified
    manifest = vault._writer.snapshot.manifest
    assert set(os.listdir(root / NAME)) == manifest.file_names | manifest.spares | {"identity.json", "current"}
    assert not any((root / NAME / name).stat().st_size for name in manifest.spares)
    assert not [name for name in os.listdir(root) if name.endswith(".new")]
    known = {f"{r.request:06}-{r.body['list']}" for r in vault._writer.ledger.read()[0] if "list" in r.body}
    lists = vault.places.lists
    assert (set(os.listdir(lists)) if lists.exists() else set()) == known  # of a request that was not accepted: nothing
    if vault.places.key.exists():
        assert SigningKey.load(vault.places.key).public.thumbprint == vault.public_keys()[0]
    for request in vault.requests:  # everybody's receipt can be made again
        wanted = request.people if request.kind in ("unlearn", "add", "rectify", "readmit") else 0
        sizes = [path.stat().st_size for path in vault.places.leaves.glob(f"{request.number:06}-*")]
        assert wanted < 2 or 32 * wanted in sizes
    return state


def operations(world: World, command: Command) -> list[Operation]:
    """What a command does to a disk if all goes well."""
    with Trial(world, command).run() as trial:
        assert trial.error is None
        return list(trial.disk.log)


def steps(log: list[Operation]) -> list[int]:
    """One operation of each kind: what is done to which of a vault's files, whatever its number; and every record."""
    kinds = {re.sub(r"\d+", "", str(operation)): k for k, operation in reversed(list(enumerate(log)))}
    records = [k for k, operation in enumerate(log) if str(operation) in ("write small.ledger", "sync small.ledger")]
    return sorted({*kinds.values(), *records})


def fitting(operation: Operation, k: int) -> Fault:
    """A fault that an operation is prone to; one in three is lasting."""
    kinds = {"sync": ["sync"], "write": ["short", "full", "error"]}.get(operation.name, ["full", "error"])
    kind = next(kind for kind in [*kinds[k % len(kinds) :], "error"] if Fault(kind).concerns(operation))
    return Fault(kind, k, lasting=k % 3 == 0)


@contextmanager
def told(*what: object) -> Iterator[None]:
    """Say with a failure what was being tried."""
    try:
        yield
    except BaseException as error:
        error.add_note(", ".join(map(str, what)))
        raise
