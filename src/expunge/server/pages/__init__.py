"""The dashboard: pages for people, drawn on the server.

They show and do what the API does, by the same tokens and scopes. Every page works without JavaScript; a small script
keeps the page up to date. A form counts only if it comes from a page of ours, and an id that somebody types is in no
address, and is kept nowhere.
"""

from fastapi import APIRouter

from .erasure import router as erasing_routes
from .matters import router as matters_routes
from .overview import overview_router as overview_routes
from .overview import verification_router as verification_routes
from .public import login_router as login_routes
from .public import receipt_router as receipt_routes
from .requests import certificate_router as certifying_routes
from .requests import request_router as listing_routes
from .templating import answer_browser
from .templating import static_router as static_routes
from .visitors import Sessions
from .webhooks import router as webhook_routes

__all__ = ["ROUTERS", "Sessions", "answer_browser", "router"]

ROUTERS = (
    overview_routes,
    listing_routes,
    certifying_routes,
    erasing_routes,
    matters_routes,
    verification_routes,
    webhook_routes,
    receipt_routes,
    login_routes,
    static_routes,
)

router = APIRouter(include_in_schema=False)
for one in ROUTERS:
    router.include_router(one)
