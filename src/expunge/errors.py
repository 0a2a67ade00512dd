"""Every exception of the package. Each carries the exit code that a command line should end with."""

from collections.abc import Mapping, Sequence


class ExpungeError(Exception):
    """Base class: catch this to catch everything that expunge raises on purpose."""

    exit_code = 1

    @classmethod
    def public_name(cls) -> str:
        """What it is called in the documents, and in JSON."""
        return cls.__name__


class InvalidSetting(ExpungeError, ValueError):
    """A parameter, or a combination of parameters, that cannot work."""

    exit_code = 2


class InvalidInput(ExpungeError, ValueError):
    """Rows, targets or ids that the model cannot take."""

    exit_code = 3


class PeopleMismatch(InvalidInput):
    """A table that is right in itself, but does not go with the people who are in the vault."""

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__


class InvalidColumns(InvalidInput):
    """A refusal that counts what is wrong, column by column. The counts of the blocks of a table can be added up.

    Parameters
    ----------
    problem : str
        What there must not be: "gaps".
    counts : mapping of str to int
        How many there are in which place, like ``column 'age'``.
    rows : int
        How many rows were looked at.
    way_out : str
        What to do about it.
    first : int, optional
        The first of these rows that has the problem, counted from zero.
    """

    _MAX_PLACES = 10  # places that the text names

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__

    def __init__(
        self, problem: str, counts: Mapping[str, int], rows: int, way_out: str, first: int | None = None
    ) -> None:
        super().__init__(problem, counts, rows, way_out, first)
        self.problem, self.counts, self.rows, self.way_out = problem, dict(counts), rows, way_out
        self.first, self.where = first, ""  # what the first row is called in the whole table
        self.complete = True  # whether these are the numbers of the whole table

    def __str__(self) -> str:
        least, of = ("", "") if self.complete else ("at least ", "the first ")
        places = [f"{least}{count:,} in {place}" for place, count in self.counts.items()]
        if more := len(places) - self._MAX_PLACES if len(places) > self._MAX_PLACES else 0:
            places[self._MAX_PLACES :] = [f"and more in {more:,} other column{'s'[: more > 1]}"]
        rows = f"(of {of}{self.rows:,} row{'s'[: self.rows != 1]}{f', first {self.where}' if self.where else ''})"
        return f"{self.problem}: {', '.join(places)} {rows}; {self.way_out}"

    def with_location(self, where: str) -> "InvalidColumns":
        """Return the same refusal with what its first row is called in the whole table."""
        made = self._copy_with({}, 0)
        made.where = where
        return made

    def add(self, other: "InvalidColumns") -> "InvalidColumns":
        """Return the refusal of these rows and of others; if those have another problem, the counts are a minimum."""
        if other.problem != self.problem:
            return self.as_minimum()
        return self._copy_with({place: self.counts.get(place, 0) + n for place, n in other.counts.items()}, other.rows)

    def add_clean_rows(self, rows: int) -> "InvalidColumns":
        """Return the refusal of these rows and of so many that are without the problem."""
        return self._copy_with({}, rows)

    def add_columns(self, other: "InvalidColumns") -> "InvalidColumns":
        """Return the refusal of these columns and of others of the same rows, if they have the same problem."""
        return self._copy_with(other.counts if other.problem == self.problem else {}, 0)

    def as_minimum(self) -> "InvalidColumns":
        """Return the same refusal of a table that was not read to its end."""
        made = self._copy_with({}, 0)
        made.complete = False
        return made

    def _copy_with(self, counts: Mapping[str, int], rows: int) -> "InvalidColumns":
        made = InvalidColumns(self.problem, {**self.counts, **counts}, self.rows + rows, self.way_out, self.first)
        made.complete, made.where = self.complete, self.where
        return made


class UnknownId(ExpungeError, LookupError):
    """An id that is not in the model: never seen or already unlearned, which the model cannot tell apart."""

    exit_code = 4


class NothingLearned(ExpungeError):
    """Every row was unlearned: there is nothing to predict from."""

    exit_code = 5


class CapacityExceeded(ExpungeError, OverflowError):
    """More coded rows than the exact integers can hold."""

    exit_code = 6


class InvalidFile(ExpungeError, ValueError):
    """A file that is not a saved model, or a damaged one."""

    exit_code = 7


class MissingData(ExpungeError, ImportError):
    """Data that an experiment reads, results that are to be judged, or a vault that is to be opened, are not there."""

    exit_code = 8


class VaultBusy(ExpungeError):
    """Another process, or another thread of this one, is writing to the vault."""

    exit_code = 9


class ErasedId(ExpungeError, ValueError):
    """Data that holds ids which were erased: they come back only if they are readmitted by name."""

    exit_code = 10


class VerificationFailed(ExpungeError):
    """A vault whose state, ledger or certificates do not fit each other."""

    exit_code = 11


class Unfinished(ExpungeError):
    """A request that was accepted and could not be finished: the next open goes on with it."""

    exit_code = 12


class InvalidCertificate(ExpungeError, ValueError):
    """A certificate that was changed, that another key signed, or that is none."""

    exit_code = 13


class AnswerLost(ExpungeError):
    """A request that was carried out, and whose answer could not be written."""

    exit_code = 14


class SigningFailed(ExpungeError):
    """A signer or a timestamp authority that did not answer, or answered with something that does not fit."""

    exit_code = 15


class ClusterFailed(ExpungeError):
    """A cluster that cannot be used, or that was lost; nothing was changed."""

    exit_code = 16


class ReplacementRefused(ExpungeError):
    """A training that would replace a vault's model by a worse one, or by one of another kind; nothing was changed."""

    exit_code = 17


class OnHold(ExpungeError):
    """People whom a legal hold keeps from being erased; nothing was changed."""

    exit_code = 18


class ReleaseRefused(OnHold):
    """A matter that cannot be released so: it was released before, or another token has to confirm it."""


def format_positions(places: Sequence[int]) -> str:
    """Name places in a list, counted from one: up to ten of them."""
    shown = ", ".join(str(place + 1) for place in places[:10])
    more = f" and {len(places) - 10:,} more" if len(places) > 10 else ""
    return f"at position{'s' if len(places) > 1 else ''} {shown}{more}"
