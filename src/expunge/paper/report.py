"""The report: all figures, claims and settings on one HTML page that needs nothing else."""

import base64
from pathlib import Path

import pandas as pd

from .. import __version__
from ..reports import render_report
from .claims import CLAIMS, Judgement
from .experiments import EXPERIMENTS
from .runs import QUICK_WARNING, is_quick


def render_page(tables: dict[str, pd.DataFrame], verdicts: dict[str, Judgement], out: Path) -> str:
    """Return the page, with the figures that are in ``out``."""
    claims = [
        {"sentence": CLAIMS[name].sentence, "holds": verdict.holds, "numbers": verdict.numbers}
        for name, verdict in verdicts.items()
    ]
    return render_report(
        "paper.html",
        title="Coded Machine Unlearning, reproduced",
        warning=QUICK_WARNING if is_quick(tables) else "",
        version=__version__,
        claims=claims,
        experiments=[_describe_experiment(name, table, out / f"{name}.png") for name, table in tables.items()],
    )


def _describe_experiment(name: str, table: pd.DataFrame, figure: Path) -> dict[str, object]:
    experiment = EXPERIMENTS[name]
    share = table["share"].min() if "share" in table else 1.0
    return {
        "name": name,
        "title": experiment.title,
        "png": base64.b64encode(figure.read_bytes()).decode() if figure.exists() else "",
        "settings": str(experiment),
        "runs": table["run"].nunique(),
        "percent": f"{100 * share:g}",
        "measurements": len(table),
    }
