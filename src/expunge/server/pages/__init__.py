"""The dashboard: pages for people, drawn on the server.

They show and do what the API does, by the same tokens and scopes. Every page works without JavaScript; a small script
keeps the page up to date. A form counts only if it comes from a page of ours, and an id that somebody types is in no
address, and is kept nowhere.
"""

from fastapi import APIRouter

from .certifying import router as certifying_routes
from .erasing import router as erasing_routes
from .holding import router as holding_routes
from .listing import router as listing_routes
from .login import router as login_routes
from .overview import router as overview_routes
from .receipt import router as receipt_routes
from .sessions import Sessions
from .static import router as static_routes
from .verifying import router as verifying_routes

__all__ = ["ROUTERS", "Sessions", "router"]

ROUTERS = (
    overview_routes,
    listing_routes,
    certifying_routes,
    erasing_routes,
    holding_routes,
    verifying_routes,
    receipt_routes,
    login_routes,
    static_routes,
)

router = APIRouter(include_in_schema=False)
for one in ROUTERS:
    router.include_router(one)
