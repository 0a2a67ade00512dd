"""The main job on real data: train, compare, forget 1 and then 1,000 people, and prove it. Run with ``make demo``."""

import time
from typing import Any

import numpy as np

from expunge import Code, CodedRegressor, RandomFourier

import tables

TRAIN = 7_500
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "one learner": ({"code": Code.single()}, "on everything; the least error there is"),
    "uncoded, 20 shards": ({"code": Code.uncoded(20)}, "plain sharding (SISA)"),
    "coded, rate 5": ({"shards": 20, "rate": 5}, "20 lanes summed into 4 learners"),
}


def main() -> None:
    """Print the comparison."""
    X, y = tables.computer_activity()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    people = np.arange(4711, 4711 + len(X))
    print(f"Computer Activity: {len(X):,} rows, 12 inputs, target usr; {TRAIN:,} rows to learn, the rest to test.")
    print("300 random cosine features, alpha 1e-3. Error is the mean squared error, target scaled to [0, 1].\n")
    print(f"{'model':19} learners     error     train  forget 1 forget 1,000  error then")
    proofs = []
    for name, (shape, meaning) in MODELS.items():
        proofs.append((name, meaning, compare(name, shape, X, y, people)))
    print("\nIs the model that forgot 1,002 people the model that never saw them?")
    print("Trained again from scratch on the others, in their slots, and compared bit for bit:\n")
    for name, meaning, (unlearned, retrained, weights) in proofs:
        same = "same" if unlearned == retrained else "NOT THE SAME"
        print(f"  {name:20} {meaning}")
        print(f"  {'':20} unlearned  {unlearned[:40]}...")
        print(f"  {'':20} retrained  {retrained[:40]}...  {same}, weights {'equal' if weights else 'NOT EQUAL'}")
    if not all(a == b and weights for _, _, (a, b, weights) in proofs):
        raise SystemExit("the models differ: this must never happen")
    print("\nA deletion updates exact integer sums and solves one small system; nothing is approximated.")
    print(
        "One learner forgets exactly and fast, too. Coding leaves a fifth of the rows to learn from at little loss, and"
    )
    print("lets a model keep no raw row (keep='coded').")


def compare(name: str, shape: dict[str, Any], X: Any, y: Any, people: Any) -> tuple[str, str, bool]:
    """Train and unlearn one kind of model; print its line; return what proves that it forgot."""
    bounds: dict[str, Any] = {"bounds": (X.min(axis=0), X.max(axis=0)), "target_bounds": (0, 99)}
    model = CodedRegressor(features=RandomFourier(300), alpha=1e-3, random_state=0, **bounds, **shape)
    test = X[TRAIN:], y[TRAIN:] / 99

    def error() -> float:
        return float(np.mean((model.predict(test[0]) / 99 - test[1]) ** 2))

    started = time.perf_counter()
    model.fit(X[:TRAIN], y[:TRAIN], ids=people[:TRAIN])
    trained, before = time.perf_counter() - started, error()
    model.unlearn(int(people[0]))  # finds the BLAS libraries, once in a process
    one = model.unlearn(int(people[1]))
    many = model.unlearn(people[2:1002])
    print(
        f"{name:19} {model.code_.learners:8} {before:9.5f} {trained * 1e3:6.0f} ms {one.seconds * 1e3:6.2f} ms "
        f"{many.seconds * 1e3:9.1f} ms {error():11.5f}",
        flush=True,
    )
    fresh = model.retrained()
    return model.digest(), fresh.digest(), bool(np.array_equal(model.coef_, fresh.coef_))


if __name__ == "__main__":
    main()
