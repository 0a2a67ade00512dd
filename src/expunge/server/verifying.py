"""Verifications: audits of the vault, one at a time, in a thread, with how far they are."""

import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

from ..errors import ExpungeError, VaultBusy
from ..vault import Vault

_KEPT = 20  # jobs that are remembered


@dataclass
class Job:
    """One verification."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    state: str = "running"  # then done or failed
    step: str = ""
    done: int = 0
    of: int = 0
    ok: bool | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""

    def tell(self, step: str, more: int, of: int | None) -> None:
        """Hear how far it is."""
        if step != self.step:
            self.step, self.done = step, 0
        self.done, self.of = self.done + more, of or 0

    def view(self) -> dict[str, Any]:
        """The job as it is told."""
        return dict(vars(self))


class Verifications:
    """The verifications of a service."""

    def __init__(self, vault: Vault) -> None:
        self._vault, self._jobs, self._lock = vault, dict[str, Job](), threading.Lock()

    def start(self) -> Job:
        """Begin one, unless one is running: then that is the answer."""
        with self._lock:
            running = next((job for job in self._jobs.values() if job.state == "running"), None)
            if running is not None:
                return running
            job = Job()
            self._jobs[job.id] = job
            for old in list(self._jobs)[:-_KEPT]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(job,), name="expunge-verify", daemon=True).start()
        return job

    def get(self, id_: str) -> Job:
        """One of them; LookupError if there is none."""
        if id_ not in self._jobs:
            raise LookupError(id_)
        return self._jobs[id_]

    def newest(self) -> Job | None:
        """The last that was begun."""
        return next(reversed(self._jobs.values()), None)

    def _run(self, job: Job) -> None:
        try:
            verdict = self._vault.verify(progress=job.tell)
        except VaultBusy as error:
            job.reason, job.state = str(error), "failed"
        except ExpungeError as error:
            job.ok, job.reason, job.state = False, str(error), "failed"
        except Exception as error:  # a thread tells nobody else
            job.reason, job.state = type(error).__name__, "failed"
        else:
            job.checks = [vars(check) for check in verdict.checks]
            job.ok, job.state = verdict.ok, "done"
