"""Every exception of the package. Each carries the exit code of a command that it ends."""

from collections.abc import Mapping, Sequence


class ExpungeError(Exception):
    """Base class: catch this to catch everything that expunge raises on purpose."""

    exit_code = 1

    @classmethod
    def public_name(cls) -> str:
        """Return the name in documentation and JSON."""
        return cls.__name__


class InvalidSetting(ExpungeError, ValueError):
    """A parameter, or a combination of parameters, that cannot work."""

    exit_code = 2


class InvalidInput(ExpungeError, ValueError):
    """Rows, targets or ids that the model cannot accept."""

    exit_code = 3


class PeopleMismatch(InvalidInput):
    """A table that is valid in itself, but does not match the people in the vault."""

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__


class InvalidColumns(InvalidInput):
    """Invalid values, counted column by column. The counts of several blocks of a table can be added.

    Parameters
    ----------
    problem : str
        What was found: "gaps".
    counts : mapping of str to int
        The number of invalid values in each place, such as ``column 'age'``.
    rows : int
        The number of rows that were checked.
    way_out : str
        What to do about it.
    first : int, optional
        The first of these rows that has the problem, counted from zero.
    """

    _MAX_PLACES = 10  # places that the message names

    @classmethod
    def public_name(cls) -> str:
        return InvalidInput.__name__

    def __init__(
        self, problem: str, counts: Mapping[str, int], rows: int, way_out: str, first: int | None = None
    ) -> None:
        super().__init__(problem, counts, rows, way_out, first)
        self.problem, self.counts, self.rows, self.way_out = problem, dict(counts), rows, way_out
        self.first, self.where = first, ""  # the first row's name in the whole table, such as "line 7"
        self.complete = True  # whether the counts are those of the whole table

    def __str__(self) -> str:
        least, of = ("", "") if self.complete else ("at least ", "the first ")
        places = [f"{least}{count:,} in {place}" for place, count in self.counts.items()]
        if more := len(places) - self._MAX_PLACES if len(places) > self._MAX_PLACES else 0:
            places[self._MAX_PLACES :] = [f"and more in {more:,} other column{'s'[: more > 1]}"]
        rows = f"(of {of}{self.rows:,} row{'s'[: self.rows != 1]}{f', first {self.where}' if self.where else ''})"
        return f"{self.problem}: {', '.join(places)} {rows}; {self.way_out}"

    def with_location(self, where: str) -> "InvalidColumns":
        """Return the same error with the name of its first row in the whole table."""
        located = self._copy_with({}, 0)
        located.where = where
        return located

    def add(self, other: "InvalidColumns") -> "InvalidColumns":
        """Return the error for these rows and others; if those have another problem, the counts are a minimum."""
        if other.problem != self.problem:
            return self.as_minimum()
        return self._copy_with({place: self.counts.get(place, 0) + n for place, n in other.counts.items()}, other.rows)

    def add_clean_rows(self, rows: int) -> "InvalidColumns":
        """Return the error for these rows and as many more that do not have the problem."""
        return self._copy_with({}, rows)

    def add_columns(self, other: "InvalidColumns") -> "InvalidColumns":
        """Return the error for these columns and others of the same rows, if they have the same problem."""
        return self._copy_with(other.counts if other.problem == self.problem else {}, 0)

    def as_minimum(self) -> "InvalidColumns":
        """Return the same error for a table that was not read to its end."""
        minimum = self._copy_with({}, 0)
        minimum.complete = False
        return minimum

    def _copy_with(self, counts: Mapping[str, int], rows: int) -> "InvalidColumns":
        copy = InvalidColumns(self.problem, {**self.counts, **counts}, self.rows + rows, self.way_out, self.first)
        copy.complete, copy.where = self.complete, self.where
        return copy


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
    """An experiment's data, results to evaluate, or a vault to open that does not exist."""

    exit_code = 8


class VaultBusy(ExpungeError):
    """Another process, or another thread of this one, is writing to the vault."""

    exit_code = 9


class PlanOutdated(VaultBusy):
    """A plan that was prepared for a replan, from rows that were changed since."""

    @classmethod
    def public_name(cls) -> str:
        return VaultBusy.__name__


class ErasedId(ExpungeError, ValueError):
    """Data with ids that were erased: they come back only if they are readmitted explicitly."""

    exit_code = 10


class VerificationFailed(ExpungeError):
    """A vault whose state, ledger or certificates contradict each other."""

    exit_code = 11


class Unfinished(ExpungeError):
    """A request that was accepted and could not be finished: the next open continues it."""

    exit_code = 12


class InvalidCertificate(ExpungeError, ValueError):
    """A certificate that was changed or signed by another key, or a file that is not a certificate."""

    exit_code = 13


class AnswerLost(ExpungeError):
    """A request that was carried out, but whose answer could not be written."""

    exit_code = 14


class SigningFailed(ExpungeError):
    """A signer or a timestamp authority that did not answer, or gave an invalid answer."""

    exit_code = 15


class ClusterFailed(ExpungeError):
    """A cluster that is unusable or was lost; nothing was changed."""

    exit_code = 16


class ReplacementRefused(ExpungeError):
    """A training that would replace a vault's model by a worse one or another kind; nothing was changed."""

    exit_code = 17


class OnHold(ExpungeError):
    """People who cannot be erased because of a legal hold; nothing was changed."""

    exit_code = 18


class ReleaseRefused(OnHold):
    """A matter that cannot be released: it was released before, or another token has to confirm it."""


def format_positions(positions: Sequence[int]) -> str:
    """Format positions in a list for a message, counted from one: the first ten of them."""
    shown = ", ".join(str(position + 1) for position in positions[:10])
    more = f" and {len(positions) - 10:,} more" if len(positions) > 10 else ""
    return f"at position{'s' if len(positions) > 1 else ''} {shown}{more}"
