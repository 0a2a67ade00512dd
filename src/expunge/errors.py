"""Every exception of the package. Each carries the exit code that a command line should end with."""


class ExpungeError(Exception):
    """Base class: catch this to catch everything that expunge raises on purpose."""

    exit_code = 1


class InvalidSetting(ExpungeError, ValueError):
    """A parameter, or a combination of parameters, that cannot work."""

    exit_code = 2


class InvalidInput(ExpungeError, ValueError):
    """Rows, targets or ids that the model cannot take."""

    exit_code = 3


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
    """Another process is writing to the vault."""

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
