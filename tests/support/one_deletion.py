"""A model that learns, unlearns one row and predicts, with native kernels: for valgrind to look at."""

import numpy as np

from expunge import CodedRegressor, RandomFourier
from expunge.exact.native import kernels

assert kernels() is not None
rng = np.random.default_rng(0)
X, y = rng.random((60, 3)), rng.random(60)
model = CodedRegressor(shards=10, rate=5, features=RandomFourier(40, linear=True), random_state=0).fit(X, y)
model.unlearn(7)
model.unlearn([8, 9, 10])
model.predict(X[:3])
assert model.digest() == model.retrained().digest()
