"""The frame of every page: self-contained, escaped, opened from disk without a network."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs


def offline_page(template: str, **facts: object) -> str:
    """Fill in a template of this package; `plotly` is there for it."""
    environment = Environment(
        loader=PackageLoader("classwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `tojson` writes <, >, & and ' as \uXXXX, so no value can end the script element.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    plotly = Markup(get_plotlyjs())  # our own dependency's text, the only one not escaped
    return environment.get_template(template).render(plotly=plotly, **facts)
