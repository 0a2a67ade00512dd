"""Results on disk: a run that was interrupted goes on, and what depends on nothing new is not computed again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .outcomes import Method, Outcome


@dataclass(frozen=True)
class Cache:
    """A folder with one file per table, split, method and settings. Its files are only as good as who wrote them."""

    folder: Path

    def get(self, table: str, split: int, data: str, method: Method) -> dict[str, Outcome] | None:
        """Return the results of a method if all are there, for the same data and settings."""
        found = {}
        for name in method.names:
            path = self._path(_key(table, split, data, name, method.settings))
            if not path.exists():
                return None
            found[name] = Outcome(**json.loads(path.read_text(encoding="utf-8"))["outcome"])
        return found

    def put(self, table: str, split: int, data: str, method: Method, outcomes: Mapping[str, Outcome]) -> None:
        """Keep the results of a method; whole or not at all."""
        for name in method.names:
            key = _key(table, split, data, name, method.settings)
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(json.dumps({"key": key, "outcome": asdict(outcomes[name])}, indent=1), encoding="utf-8")
            new.replace(path)

    def _path(self, key: Mapping[str, Any]) -> Path:
        text = json.dumps(key, sort_keys=True)
        name = key["method"].replace(" ", "-").replace(",", "")
        tail = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self.folder / str(key["table"]) / f"{key['split']}-{name}-{tail}.json"


def _key(table: str, split: int, data: str, method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"table": table, "split": split, "data": data, "method": method, "settings": dict(settings)}
