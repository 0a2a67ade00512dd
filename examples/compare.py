"""Models side by side on real data: train, forget 1 and then 1,000 people, prove it. Run with ``make compare``."""

import time
from typing import Any

import numpy as np

from expunge import Code, CodedRegressor, RandomFourier
from expunge.paper.data import read_dataset

TRAIN = 7_500
# What an operator would declare: round numbers that the counters of such a machine cannot exceed, not values of rows.
LOW = 0.0
HIGH = [2e3, 1e3, 15e3, 6e3, 6e3, 25, 60, 3e6, 2e6, 3e3, 15e3, 2.5e6]
TARGET = (0.0, 100.0)  # a percentage
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "one learner": ({"code": Code.single()}, "on everything; the least error there is"),
    "uncoded, 20 shards": ({"code": Code.uncoded(20)}, "plain sharding (SISA)"),
    "coded, rate 5": ({"shards": 20, "rate": 5}, "20 lanes summed into 4 learners"),
}


def main() -> None:
    """Print the comparison."""
    X, y = read_dataset("computer-activity")
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    people = np.arange(4711, 4711 + len(X))
    print(f"Computer Activity: {len(X):,} rows, 12 inputs, target usr; {TRAIN:,} rows to learn, the rest to test.")
    print("300 random cosine features, alpha 1e-3, declared bounds. Error: mean squared, target scaled to [0, 1].\n")
    print(f"{'model':19} learners     error     train  forget 1 forget 1,000  error then")
    warm_up(X, y)
    proofs = []
    for name, (shape, meaning) in MODELS.items():
        proofs.append((name, meaning, compare(name, shape, X, y, people)))
    print("\nIs the model that forgot 1,001 people the model that never saw them?")
    print("Trained again from scratch on the others, in their slots, and compared bit for bit:\n")
    for name, meaning, (unlearned, retrained, equal) in proofs:
        same = "same" if unlearned == retrained else "NOT THE SAME"
        print(f"  {name:20} {meaning}")
        print(f"  {'':20} unlearned  {unlearned[:40]}...")
        print(f"  {'':20} retrained  {retrained[:40]}...  {same}, predictions {'equal' if equal else 'NOT EQUAL'}")
    if not all(a == b and equal for _, _, (a, b, equal) in proofs):
        raise SystemExit("the models differ: this must never happen")
    print("\nA deletion updates exact integer sums and solves one small system; nothing is approximated.")
    print(
        "One learner forgets exactly and fast, too. Coding leaves a fifth of the rows to learn from at little loss, and"
    )
    print("lets a model keep no raw row (keep='coded').")


def warm_up(X: Any, y: Any) -> None:
    """Let Python and BLAS load what they load once in a process, so that it is not counted as forgetting."""
    CodedRegressor(features=RandomFourier(300)).fit(X[:50], y[:50]).unlearn(0)


def compare(name: str, shape: dict[str, Any], X: Any, y: Any, people: Any) -> tuple[str, str, bool]:
    """Train and unlearn one kind of model; print its line; return what proves that it forgot."""
    model = CodedRegressor(
        features=RandomFourier(300), alpha=1e-3, bounds=(LOW, HIGH), target_bounds=TARGET, random_state=0, **shape
    )

    def error() -> float:
        return float(np.mean(((model.predict(X[TRAIN:]) - y[TRAIN:]) / 100) ** 2))

    started = time.perf_counter()
    model.fit(X[:TRAIN], y[:TRAIN], ids=people[:TRAIN])
    trained, before = time.perf_counter() - started, error()
    one = model.unlearn(int(people[0]))
    many = model.unlearn(people[1:1001])
    print(
        f"{name:19} {model.code_.learners:8} {before:9.5f} {trained * 1e3:6.0f} ms {one.seconds * 1e3:6.2f} ms "
        f"{many.seconds * 1e3:9.1f} ms {error():11.5f}",
        flush=True,
    )
    fresh = model.retrained()
    return model.digest(), fresh.digest(), bool(np.array_equal(model.predict(X), fresh.predict(X)))


if __name__ == "__main__":
    main()
