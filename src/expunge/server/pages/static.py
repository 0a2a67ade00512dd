"""Static files: the style, the script and the icon of the pages, by addresses that change with their content."""

import hashlib
from functools import lru_cache
from importlib.resources import files

from fastapi import APIRouter, Response

from ..problems import Problem

router = APIRouter()

_TYPES = {
    "style.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@lru_cache(maxsize=len(_TYPES))
def content(name: str) -> bytes:
    """The bytes of a file."""
    return files(__package__).joinpath("static", name).read_bytes()


def address(name: str) -> str:
    """Where a file is."""
    return f"/static/{name}?v={hashlib.sha256(content(name)).hexdigest()[:12]}"


@router.get("/static/{name}")
def static(name: str) -> Response:
    """One of the files; browsers may keep it, because another content has another address."""
    if name not in _TYPES:
        raise Problem(404, "not-found")
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content(name), headers=kept, media_type=_TYPES[name])
