"""The page that checks personal receipts in a browser, without a network: one file, to be saved and handed out."""

from importlib.resources import files


def page() -> str:
    """The page, in HTML; ASCII, so that it is the same bytes everywhere."""
    return files(__package__).joinpath("check.html").read_text("ascii")
