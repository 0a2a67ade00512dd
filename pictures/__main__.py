"""Write the pictures to ``docs/figures``."""

from pathlib import Path

from . import PICTURES

if __name__ == "__main__":
    for name, drawn in PICTURES.items():
        (Path(__file__).parents[1] / "docs" / "figures" / name).write_text(drawn(), encoding="utf-8")
