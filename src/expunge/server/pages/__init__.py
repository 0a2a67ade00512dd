"""The dashboard: pages for people, drawn on the server.

They show and do what the API does, by the same tokens and scopes. Every page works without JavaScript; a small script
keeps the page up to date. A form counts only if it comes from a page of ours, and an id that somebody types is in no
address, and is kept nowhere.
"""

from fastapi import APIRouter

from .certifying import router as certifying_routes
from .erasing import router as erasing_routes
from .listing import router as listing_routes
from .login import router as login_routes
from .matters import router as matters_routes
from .overview import router as overview_routes
from .receipt import router as receipt_routes
from .rendering import answer_browser
from .sessions import Sessions
from .static import router as static_routes
from .verifications import router as verification_routes
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
