"""The report: all figures, claims and settings on one HTML page that needs nothing else."""

import base64
import html
from pathlib import Path

import pandas as pd

from .. import __version__
from .claims import CLAIMS, Judgement
from .experiments import EXPERIMENTS
from .runs import QUICK_WARNING, is_quick

PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Coded Machine Unlearning, reproduced</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }} td, th {{ padding: .4rem .7rem; border-bottom: 1px solid #ddd; text-align: left;
vertical-align: top }} .yes {{ color: #006b3c }} .no {{ color: #b00020 }} img {{ max-width: 100% }}
code {{ color: #555; font-size: .8em; overflow-wrap: anywhere }}
</style></head><body>
<h1>Coded Machine Unlearning, reproduced</h1>{warning}
<p>expunge {version}. {held} of {judged} claims hold. Costs were measured on the machine that made this page.</p>
<h2>Claims</h2><table><tr><th>claim</th><th></th><th>numbers</th></tr>{claims}</table>
<h2>Experiments</h2>{experiments}
</body></html>
"""


def render_page(tables: dict[str, pd.DataFrame], verdicts: dict[str, Judgement], out: Path) -> str:
    """The page, with the figures that are in ``out``."""
    claims = "".join(
        f"<tr><td>{html.escape(CLAIMS[name].sentence)}</td><td class={'yes' if v.holds else 'no'}>"
        f"{'holds' if v.holds else 'does not hold'}</td><td>{html.escape(v.numbers)}</td></tr>"
        for name, v in verdicts.items()
    )
    return PAGE_TEMPLATE.format(
        warning=f"\n<p class=no><strong>{QUICK_WARNING}</strong></p>" if is_quick(tables) else "",
        version=__version__,
        held=sum(v.holds for v in verdicts.values()),
        judged=len(verdicts),
        claims=claims,
        experiments="".join(_render_experiment(name, table, out) for name, table in tables.items()),
    )


def _render_experiment(name: str, table: pd.DataFrame, out: Path) -> str:
    experiment, figure = EXPERIMENTS[name], out / f"{name}.png"
    image = ""
    if figure.exists():
        data = base64.b64encode(figure.read_bytes()).decode()
        image = f'<p><img alt="{html.escape(experiment.title)}" src="data:image/png;base64,{data}"></p>'
    runs, part = table["run"].nunique(), table["share"].min() if "share" in table else 1.0
    done = f"{runs} runs on {100 * part:g} % of the rows, {len(table)} measurements."
    settings = f"<p><code>{html.escape(str(experiment))}</code><br>{done}</p>"
    return f"<h3>{html.escape(experiment.title)} <small>({html.escape(name)})</small></h3>{image}{settings}"
