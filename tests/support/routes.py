"""Routes: all that an application answers, by method and path."""

from fastapi import routing


def every_route(app):
    """Yield every method and path, also of routers within routers."""
    walk = getattr(routing, "iter_route_contexts", None)  # older releases have all routes in one list
    for route in walk(app.routes) if walk else app.routes:
        for method in sorted(getattr(route, "methods", None) or ()):
            if method != "HEAD":
                yield method, route.path
