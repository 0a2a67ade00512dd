"""HTML reports: one file each, without scripts and without anything loaded from elsewhere.

The templates are Jinja2's, which is imported only when a page is rendered. `svg` draws charts. This room knows nothing
of the rest of the package.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render_report(template: str, **values: Any) -> str:
    """Render a template of this package; values are escaped, unless the template marks them as safe."""
    return _load_environment().get_template(template).render(**values)


@cache
def _load_environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("expunge.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
