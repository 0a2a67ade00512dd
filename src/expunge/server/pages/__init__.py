"""The dashboard: HTML pages rendered on the server.

The pages show and do what the API does, with the same tokens and scopes. They all work without JavaScript; a small
script keeps them up to date. A form is accepted only from one of our own pages, and the ids that people type are
neither put into an address nor stored.
"""

from fastapi import APIRouter

from . import erasure, matters, overview, public, requests, templating, webhooks
from .templating import answer_browser
from .visitors import Sessions

__all__ = ["Sessions", "answer_browser", "router"]

router = APIRouter(include_in_schema=False)
for _page in (overview, requests, erasure, matters, webhooks, public, templating):
    router.include_router(_page.router)
