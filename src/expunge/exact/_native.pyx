# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The loops of ``kernels.c`` on NumPy arrays. Only this package calls them, so only shapes are checked."""

from libc.math cimport ldexp
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from scipy.linalg.cython_blas cimport dsyrk
from scipy.linalg.cython_lapack cimport dpotrf, dtrtrs

import numpy as np

from .native import native_column, native_map, native_predictor


cdef extern from "kernels.h" nogil:
    ctypedef struct expunge_map:
        Py_ssize_t inputs
        Py_ssize_t cosines
        const double *turns
        const double *terms
        int linear
        double unit

    enum:
        EXPUNGE_TILE
        EXPUNGE_BLOCK
        EXPUNGE_TERMS
        EXPUNGE_PANEL
        EXPUNGE_GATHERED

    void expunge_cosines(double *, Py_ssize_t, const double *)
    void expunge_features(const expunge_map *, const double *, Py_ssize_t, double *, double *, Py_ssize_t)
    void expunge_coded(
        const expunge_map *, const double *, Py_ssize_t, const int64_t *, const double *, Py_ssize_t, double *,
        double *, Py_ssize_t, Py_ssize_t,
    )
    void expunge_targets(
        const double *, Py_ssize_t, Py_ssize_t, double, int, const int64_t *, const double *, Py_ssize_t, double *,
        Py_ssize_t, Py_ssize_t,
    )
    void expunge_predicted(
        const expunge_map *, const double *, Py_ssize_t, const double *, Py_ssize_t, double *, double *
    )
    void expunge_scaled(
        const double *, Py_ssize_t, Py_ssize_t, const double *, const double *, int, double *
    )
    void expunge_unscale(
        double *, Py_ssize_t, Py_ssize_t, const double *, const double *, const double *, const double *
    )
    int expunge_inside(const double *, Py_ssize_t, Py_ssize_t, const double *, const double *)
    int expunge_finite(const double *, Py_ssize_t)
    void expunge_slices(const double *, Py_ssize_t, double *, double *, double *)
    void expunge_exchanged(const double *, const double *, const double *, Py_ssize_t, double *)
    void expunge_exchanged_integers(const int64_t *, const double *, const double *, Py_ssize_t, int64_t *)
    void expunge_packed(const double *, Py_ssize_t, double *)
    int expunge_multiplies()
    void expunge_multiply(const double *, Py_ssize_t, Py_ssize_t, double, double *, double *)
    void expunge_middle(double *, Py_ssize_t)
    void expunge_matrix(const double *, Py_ssize_t, const double *, double *)
    void expunge_matrix_of_integers(const int64_t *, Py_ssize_t, const double *, double *)
    void expunge_relearned(
        const double *, const double *, const double *, Py_ssize_t, double *, const double *, double *
    )
    void expunge_relearned_integers(
        const int64_t *, const double *, const double *, Py_ssize_t, int64_t *, const double *, double *
    )
    void expunge_wipe(double *, Py_ssize_t)

    ctypedef struct expunge_column:
        const expunge_map *map
        const double *low
        const double *high
        const double *least
        const double *most
        Py_ssize_t targets
        const int64_t *lanes
        const double *weights
        Py_ssize_t count
        int ones

    ctypedef struct expunge_stripe:
        const double *X
        const double *y
        const unsigned char *live
        Py_ssize_t first
        int64_t lane
        const double *new_X
        const double *new_y

    void expunge_touched(
        const expunge_column *, const expunge_stripe *, double *, double *, Py_ssize_t, Py_ssize_t *
    )
    Py_ssize_t expunge_shard(
        const expunge_column *, const double *, const double *, const unsigned char *, Py_ssize_t, Py_ssize_t *,
        Py_ssize_t, double *, double *, Py_ssize_t, Py_ssize_t, Py_ssize_t *,
    )
    void expunge_clear(double *, Py_ssize_t)
    void expunge_shuffle(
        const uint64_t *, Py_ssize_t, uint64_t, const uint64_t *, const uint64_t *, uint64_t *, Py_ssize_t, int
    )


cdef class Scratch:
    """Memory for a call, wiped when it ends: it may contain rows that are unlearned later."""

    cdef double *numbers
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t size):
        self.size = size
        self.numbers = <double *> malloc(max(1, size) * sizeof(double))
        if self.numbers is NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.numbers is not NULL:
            expunge_wipe(self.numbers, self.size)
            free(self.numbers)


cdef class Map:
    """Random cosine features times a unit, followed, if ``linear``, by the inputs themselves."""

    cdef expunge_map it
    cdef const double[:, :, ::1] turns
    cdef const double[::1] terms
    cdef tuple made_of

    def __init__(self, const double[:, :] turns, const double[::1] terms, bint linear, double unit):
        """``turns``, (d + 1, D), are phases per unit of the grid, b in the last row; ``terms``, (8,), a polynomial."""
        cdef Py_ssize_t d = turns.shape[0] - 1, D = turns.shape[1], tiles = (D + EXPUNGE_TILE - 1) // EXPUNGE_TILE
        if d < 0 or (d == 0 and D) or terms.shape[0] != EXPUNGE_TERMS:
            raise ValueError("turns must have rows for inputs and one for b, and terms must be 8")
        padded = np.zeros((d + 1, tiles * EXPUNGE_TILE))
        padded[:, :D] = turns
        self.turns = np.ascontiguousarray(padded.reshape(d + 1, tiles, EXPUNGE_TILE).swapaxes(0, 1))
        self.terms = terms
        self.it.inputs, self.it.cosines = d, D
        self.it.turns = &self.turns[0, 0, 0] if tiles else NULL
        self.it.terms = &self.terms[0]
        self.it.linear, self.it.unit = linear, unit
        self.made_of = np.array(turns), np.array(terms), linear, unit

    def __reduce__(self):
        return native_map, self.made_of

    @property
    def n_out(self):
        """The number of features."""
        return self.it.cosines + (self.it.inputs if self.it.linear else 0)

    def features(self, const double[:, ::1] scaled):
        """Return the features of rows: (n, d) -> (n, D)."""
        cdef Py_ssize_t n = scaled.shape[0], width = self.n_out
        _check(scaled.shape[1] == self.it.inputs)
        made = np.empty((n, width))
        cdef double[:, ::1] out = made
        cdef Scratch scratch = Scratch(EXPUNGE_BLOCK * self.it.inputs)
        if n and width:
            with nogil:
                expunge_features(&self.it, _rows(scaled), n, scratch.numbers, &out[0, 0], width)
        return made

    def coded(
        self,
        const double[:, ::1] scaled,
        const double[:, ::1] targets,
        const int64_t[::1] owner,
        const double[:, ::1] weights,
        Py_ssize_t m,
        bint ones,
    ):
        """Sum rows as integers into coded rows.

        Row k, (n, d) with targets (n, t), both scaled, is added to coded row ``owner[k]`` of each set, with
        ``weights[set, k]``: (sets, m, D [+ 1] + t), the ones before the targets.
        """
        cdef Py_ssize_t n = scaled.shape[0], t = targets.shape[1], sets = weights.shape[0], D = self.n_out
        cdef Py_ssize_t width = D + ones + t, k
        _check(scaled.shape[1] == self.it.inputs and targets.shape[0] == owner.shape[0] == weights.shape[1] == n)
        for k in range(n):
            _check(0 <= owner[k] < m)
        made = np.zeros((sets, m, width))
        cdef double[:, :, ::1] out = made
        cdef Scratch scratch = Scratch(EXPUNGE_BLOCK * self.it.inputs)
        if n and sets:
            with nogil:
                expunge_coded(
                    &self.it, _rows(scaled), n, &owner[0], &weights[0, 0], sets, scratch.numbers, &out[0, 0, 0], m,
                    width,
                )
                expunge_targets(
                    _rows(targets), n, t, self.it.unit, ones, &owner[0], &weights[0, 0], sets, &out[0, 0, D], m, width
                )
        return made


def cosines(double[:, ::1] turns, const double[::1] terms):
    """Compute unit * cos(2 pi t) in place of phases t in turns."""
    _check(terms.shape[0] == EXPUNGE_TERMS)
    if turns.shape[0] and turns.shape[1]:
        with nogil:
            expunge_cosines(&turns[0, 0], turns.shape[0] * turns.shape[1], &terms[0])


cdef class Predictor:
    """Linear models of the features of a `Map`, (D [+ 1], t) weights, the intercept last."""

    cdef Map map
    cdef const double[:, ::1] weights
    cdef Py_ssize_t targets
    cdef tuple made_of

    def __init__(self, Map features, const double[:, :] weights, bint intercept):
        cdef Py_ssize_t d = features.it.inputs, D = features.it.cosines, whole = len(features.turns) * EXPUNGE_TILE
        _check(weights.shape[0] == features.n_out + intercept)
        given = np.asarray(weights).T
        padded = np.zeros((weights.shape[1], whole + d + 1))
        padded[:, :D] = given[:, :D]
        if features.it.linear:
            padded[:, whole : whole + d] = given[:, D : D + d]
        if intercept:
            padded[:, whole + d] = given[:, features.n_out]
        self.map, self.weights, self.targets = features, padded, weights.shape[1]
        self.made_of = features, np.array(weights), intercept

    def __reduce__(self):
        return native_predictor, self.made_of

    def predict(self, const double[:, ::1] scaled):
        """Return predictions for scaled rows: (n, d) -> (n, t)."""
        cdef Py_ssize_t n = scaled.shape[0], t = self.targets, d = self.map.it.inputs
        _check(scaled.shape[1] == d)
        made = np.empty((n, t))
        cdef double[:, ::1] out = made
        cdef Scratch scratch = Scratch(EXPUNGE_BLOCK * d + 2 * EXPUNGE_TILE * t)
        if n and t:
            with nogil:
                expunge_predicted(
                    &self.map.it, &self.weights[0, 0], t, _rows(scaled), n, scratch.numbers, &out[0, 0]
                )
        return made


def scaled(const double[:, ::1] values, const double[::1] low, const double[::1] high, bint clamp):
    """Return positions between the bounds, with ``clamp`` of the nearest values inside; 0 if the bounds are equal."""
    cdef Py_ssize_t n = values.shape[0], d = values.shape[1]
    _check(low.shape[0] == high.shape[0] == d)
    made = np.empty((n, d))
    cdef double[:, ::1] out = made
    if n and d:
        with nogil:
            expunge_scaled(&values[0, 0], n, d, &low[0], &high[0], clamp, &out[0, 0])
    return made


def unscale(
    double[:, ::1] values,
    const double[::1] low,
    const double[::1] high,
    const double[::1] least,
    const double[::1] most,
):
    """Invert `scaled` in place, then clamp to the limits ``least`` and ``most`` unless they are NaN."""
    cdef Py_ssize_t n = values.shape[0], t = values.shape[1]
    _check(low.shape[0] == high.shape[0] == least.shape[0] == most.shape[0] == t)
    if n and t:
        with nogil:
            expunge_unscale(&values[0, 0], n, t, &low[0], &high[0], &least[0], &most[0])


def inside(const double[:, ::1] values, const double[::1] low, const double[::1] high):
    """Return whether all values are inside the bounds; NaN is no bound."""
    cdef Py_ssize_t n = values.shape[0], d = values.shape[1]
    _check(low.shape[0] == high.shape[0] == d)
    return n == 0 or d == 0 or expunge_inside(&values[0, 0], n, d, &low[0], &high[0]) != 0


def finite(const double[:, ::1] values):
    """Return whether all values are finite."""
    cdef Py_ssize_t count = values.shape[0] * values.shape[1]
    return count == 0 or expunge_finite(&values[0, 0], count) != 0


def slices(const double[:, ::1] q, double[:, :, ::1] out):
    """Write the slices h, h + l and l of integers q = h * 2^18 + l, (m, w), into the first m rows of (3, most, w)."""
    cdef Py_ssize_t m = q.shape[0], w = q.shape[1]
    _check(out.shape[0] == 3 and out.shape[1] >= m and out.shape[2] == w)
    if m and w:
        with nogil:
            expunge_slices(&q[0, 0], m * w, &out[0, 0, 0], &out[1, 0, 0], &out[2, 0, 0])


def exchanged(limbs, const double[:, ::1] before, const double[:, ::1] after, kind):
    """Return new limbs, (3, P), of this type with one coded row in place of another, each (1, w) or (0, w)."""
    cdef Py_ssize_t w = before.shape[1], P = w * (w + 1) // 2
    _check(limbs.shape == (3, P) and P > 0 and after.shape[1] == w and before.shape[0] <= 1 and after.shape[0] <= 1)
    cdef Scratch room = Scratch(5 * w)
    cdef double *q = room.numbers
    cdef double *p = q + 2 * w
    _cut(before, q, p + 2 * w)
    _cut(after, p, p + 2 * w)
    made = np.empty((3, P), dtype=kind)
    cdef const double[:, ::1] floats
    cdef const int64_t[:, ::1] integers
    cdef double[:, ::1] out
    cdef int64_t[:, ::1] whole
    if made.dtype == np.float64:
        floats, out = limbs.astype(np.float64, copy=False), made
        with nogil:
            expunge_exchanged(&floats[0, 0], q, p, w, &out[0, 0])
    else:
        integers, whole = limbs.astype(np.int64, copy=False), made
        with nogil:
            expunge_exchanged_integers(&integers[0, 0], q, p, w, &whole[0, 0])
    return made


cdef void _cut(const double[:, ::1] row, double *sliced, double *spare) noexcept:
    """Compute the slices h and l of a row, or zeros if there is none."""
    cdef Py_ssize_t w = row.shape[1]
    if row.shape[0]:
        expunge_slices(&row[0, 0], w, sliced, spare, sliced + w)
    else:
        expunge_wipe(sliced, 2 * w)


def packed(const double[:, :, ::1] sums):
    """Return the limbs H'H, H'L + L'H, L'L, (3, P), from the triangles of H'H, (H + L)'(H + L), L'L, (3, w, w)."""
    cdef Py_ssize_t w = sums.shape[1]
    _check(sums.shape[0] == 3 and sums.shape[2] == w and w > 0)
    made = np.empty((3, w * (w + 1) // 2))
    cdef double[:, ::1] out = made
    with nogil:
        expunge_packed(&sums[0, 0, 0], w, &out[0, 0])
    return made


def multiplies():
    """Return whether this machine can `multiply`; on others BLAS sums the products, in squares."""
    return expunge_multiplies() != 0


def room(Py_ssize_t m, Py_ssize_t w):
    """Return memory for m coded rows, followed by that of `multiply` for them: (2, m, w rounded up)."""
    cdef Py_ssize_t whole = (w + EXPUNGE_PANEL - 1) // EXPUNGE_PANEL * EXPUNGE_PANEL
    spacious = np.empty(2 * m * whole + 8)
    first = -spacious.ctypes.data % 64 // 8  # a line of the cache
    return spacious[first : first + 2 * m * whole].reshape(2, m, whole)


def multiply(const double[:, ::1] q, double sign, double[:, ::1] sums, double[:, :, ::1] room):
    """Add sign times the products of coded rows, (m, w), to triangles of H'H, (H + L)'(H + L), L'L, (3, P)."""
    cdef Py_ssize_t m = q.shape[0], w = q.shape[1]
    _check(expunge_multiplies() and m > 0 and w > 0)
    _check(sums.shape[0] == 3 and sums.shape[1] == w * (w + 1) // 2)
    _check(room.shape[0] == 2 and room.shape[1] >= m and room.shape[2] >= w and room.shape[2] % EXPUNGE_PANEL == 0)
    with nogil:
        expunge_multiply(&q[0, 0], m, w, sign, &room[1, 0, 0], &sums[0, 0])


def middle(double[:, ::1] sums):
    """Make limbs, (3, P), of the triangles of H'H, (H + L)'(H + L), L'L, in place."""
    _check(sums.shape[0] == 3 and sums.shape[1] > 0)
    with nogil:
        expunge_middle(&sums[0, 0], sums.shape[1])


def matrix(limbs, const double[::1] scales, Py_ssize_t w):
    """Return the upper triangle of the sum of limb * scale, (w, w); ignore the lower one."""
    made = np.empty((w, w))
    cdef double[:, ::1] out = made
    _fill(limbs, scales, w, &out[0, 0])
    return made


def ridge(
    limbs, const double[::1] scales, Py_ssize_t w, Py_ssize_t targets, double alpha, bint intercept, double large, room
):
    """Solve the ridge system of limbs, see `exact.ridge`: (p, t), or None if it is singular to working precision.

    ``room``, (w, w), is overwritten; None allocates memory.
    """
    _check(0 < targets < w)
    # NumPy allocates faster, and the matrix need not be wiped: it is a sum of present rows.
    cdef double[:, ::1] whole = np.empty((w, w)) if room is None else room
    _check(whole.shape[0] == whole.shape[1] == w)
    cdef Scratch scratch = Scratch(w + w * targets)
    cdef bint solved
    _fill(limbs, scales, w, &whole[0, 0])
    made = np.empty((w - targets, targets))
    cdef double[:, ::1] out = made
    with nogil:
        solved = _solve(&whole[0, 0], w, targets, alpha, intercept, large, scratch.numbers, &out[0, 0])
    return made if solved else None


cdef bint _solve(
    double *M, Py_ssize_t w, Py_ssize_t targets, double alpha, bint intercept, double large, double *room, double *out
) noexcept nogil:
    """Solve a system in place; ``room`` has w + w * targets numbers. Return False if it is singular."""
    cdef Py_ssize_t p = w - targets, i, j
    cdef double *floor = room
    cdef double *V = room + p
    cdef int n = <int> w, t = <int> targets, failed = 0
    for i in range(p - intercept):
        M[i * (w + 1)] += alpha
    for i in range(p):
        floor[i] = M[i * (w + 1)] * (w * 2.0**-52)
    for i in range(p, w):  # replace the products of the targets among themselves, which are not needed
        for j in range(i + 1, w):
            M[i * w + j] = 0.0
        M[i * (w + 1)] = large
    dpotrf(b"L", &n, M, &n, &failed)
    if failed:
        return False
    for i in range(p):
        if not M[i * (w + 1)] * M[i * (w + 1)] > floor[i]:
            return False
    for j in range(targets):
        for i in range(p):
            V[j * w + i] = M[i * w + p + j]
        for i in range(p, w):
            V[j * w + i] = 0.0
    dtrtrs(b"L", b"T", b"N", &n, &t, M, &n, V, &n, &failed)
    for i in range(p):
        for j in range(targets):
            out[i * targets + j] = V[j * w + i]
    return failed == 0


cdef class Column:
    """The lanes of one learner and the bounds of its rows: sums products, and relearns if one row changes."""

    cdef expunge_column it
    cdef Map map
    cdef const int64_t[::1] lanes
    cdef const double[::1] weights
    cdef const double[:, ::1] inputs
    cdef const double[:, ::1] targets
    cdef Py_ssize_t width, last
    cdef tuple made_of

    def __init__(
        self,
        Map features,
        const int64_t[::1] lanes,
        const double[::1] weights,
        const double[:, ::1] inputs,
        const double[:, ::1] targets,
        Py_ssize_t t,
        bint ones,
    ):
        """Bounds are (2, d) and (2, t); None means that values are used as they are."""
        _check(lanes.shape[0] == weights.shape[0] > 0 and t > 0 and min(lanes) >= 0)
        _check(inputs is None or (inputs.shape[0] == 2 and inputs.shape[1] == features.it.inputs > 0))
        _check(targets is None or (targets.shape[0] == 2 and targets.shape[1] == t))
        self.map, self.lanes, self.weights, self.inputs, self.targets = features, lanes, weights, inputs, targets
        self.it.map, self.it.lanes, self.it.weights = &features.it, &lanes[0], &weights[0]
        self.it.count, self.it.targets, self.it.ones = lanes.shape[0], t, ones
        if inputs is not None:
            self.it.low, self.it.high = &inputs[0, 0], &inputs[1, 0]
        if targets is not None:
            self.it.least, self.it.most = &targets[0, 0], &targets[1, 0]
        self.width, self.last = features.n_out + ones + t, max(lanes)
        bounds = None if inputs is None else np.array(inputs), None if targets is None else np.array(targets)
        self.made_of = features, np.array(lanes), np.array(weights), *bounds, t, ones

    def __reduce__(self):
        return native_column, self.made_of

    def relearned(
        self,
        const double[:, ::1] X,
        const double[:, ::1] y,
        const unsigned char[::1] live,
        Py_ssize_t first,
        Py_ssize_t lane,
        const double[:, ::1] new_X,
        const double[:, ::1] new_y,
        limbs,
        int bits,
        double alpha,
        double large,
    ):
        """Return the new limbs, (3, P), weights, and how many rows the coded row had before and has after.

        In a stripe the row in this lane, if any, is replaced by the new one, (1, d) and (1, t), or by none. The rows
        are in the slots from ``first`` on that are ``live``; if ``first`` is negative, the tables have only the rows of
        the learner's lanes that are ``live``, (L,). ``bits`` is F. The weights are None if the system is singular to
        working precision.
        """
        cdef Py_ssize_t d = self.map.it.inputs, t = self.it.targets, w = self.width, k, there = 0
        cdef double scales[3]
        cdef Py_ssize_t members[2]
        cdef bint solved
        cdef expunge_stripe stripe = expunge_stripe(_rows(X), _rows(y), NULL, first, lane, NULL, NULL)
        _check(X.shape[1] == d and y.shape[1] == t and X.shape[0] == y.shape[0])
        _check(limbs.shape == (3, w * (w + 1) // 2) and live.shape[0] > 0)
        if first < 0:
            for k in range(live.shape[0]):
                there += live[k] != 0
            _check(live.shape[0] == self.it.count and there == X.shape[0])
        else:
            _check(first + self.last < live.shape[0] == X.shape[0])
        stripe.live = &live[0]
        if new_X is not None:
            _check(new_X.shape[0] == new_y.shape[0] == 1 and new_X.shape[1] == d and new_y.shape[1] == t)
            stripe.new_X, stripe.new_y = _rows(new_X), _rows(new_y)
        cdef Scratch scratch = Scratch((EXPUNGE_BLOCK + 1) * d + t + 7 * w + w + w * t)
        cdef double *coded = scratch.numbers + (EXPUNGE_BLOCK + 1) * d + t
        cdef double *q = coded + 2 * w  # slices of the old coded row, then of the new one
        square, made, solution = np.empty((w, w)), np.empty(limbs.shape, dtype=limbs.dtype), np.empty((w - t, t))
        cdef double[:, ::1] whole = square, W = solution
        cdef const double[:, ::1] floats
        cdef const int64_t[:, ::1] integers
        cdef double[:, ::1] out
        cdef int64_t[:, ::1] out_integers
        cdef bint in_floats = made.dtype == np.float64
        if in_floats:
            floats, out = limbs, made
        else:
            integers, out_integers = limbs, made
        with nogil:
            for k in range(3):
                scales[k] = ldexp(1.0, 18 * <int> (2 - k) - 2 * bits)
            expunge_wipe(coded, 2 * w)
            expunge_touched(&self.it, &stripe, scratch.numbers, coded, w, members)
            expunge_slices(coded, w, q, q + 4 * w, q + w)
            expunge_slices(coded + w, w, q + 2 * w, q + 4 * w, q + 3 * w)
            if in_floats:
                expunge_relearned(&floats[0, 0], q, q + 2 * w, w, &out[0, 0], scales, &whole[0, 0])
            else:
                expunge_relearned_integers(
                    &integers[0, 0], q, q + 2 * w, w, &out_integers[0, 0], scales, &whole[0, 0]
                )
            solved = _solve(&whole[0, 0], w, t, alpha, self.it.ones, large, q + 5 * w, &W[0, 0])
        return made, solution if solved else None, members[0], members[1]

    def add(
        self,
        const double[:, ::1] X,
        const double[:, ::1] y,
        const unsigned char[::1] live,
        Py_ssize_t shards,
        Py_ssize_t first,
        Py_ssize_t last,
        sums,
        double[:, :, ::1] room,
    ):
        """Add the products of the learner's coded rows in stripes to sums; return the number of coded rows and rows.

        ``sums`` are triangles of H'H, (H + L)'(H + L), L'L: packed, (3, P), with a ``room`` from `room` for m coded
        rows at a time; or the upper ones of squares, (3, w, w), with (4, m, w) for coded rows and their slices.
        """
        cdef Py_ssize_t d = self.map.it.inputs, t = self.it.targets, w = self.width, most = room.shape[1], k
        cdef Py_ssize_t members = 0, total = 0
        cdef int n = <int> w, m
        cdef double one = 1.0
        _check(X.shape[1] == d and y.shape[1] == t and X.shape[0] == y.shape[0] == live.shape[0])
        _check(self.last < shards and 0 <= first and last <= live.shape[0] // shards)
        cdef double[:, ::1] triangles
        cdef double[:, :, ::1] squares
        cdef bint packed = sums.ndim == 2
        if packed:
            triangles = sums
            _check(expunge_multiplies() and sums.shape == (3, w * (w + 1) // 2))
            _check(room.shape[0] == 2 and most > 0 and room.shape[2] >= w and room.shape[2] % EXPUNGE_PANEL == 0)
        else:
            squares = sums
            _check(sums.shape == (3, w, w) and room.shape[0] == 4 and room.shape[2] == w and most > 0)
        cdef Scratch scratch = Scratch(EXPUNGE_BLOCK * d + EXPUNGE_GATHERED * (d + t + 1))
        with nogil:
            while first < last:
                m = <int> expunge_shard(
                    &self.it, _rows(X), _rows(y), &live[0], shards, &first, last, scratch.numbers, &room[0, 0, 0],
                    most, w, &members,
                )
                if m == 0:
                    continue
                total += m
                if packed:
                    expunge_multiply(&room[0, 0, 0], m, w, one, &room[1, 0, 0], &triangles[0, 0])
                    continue
                expunge_slices(&room[0, 0, 0], m * w, &room[1, 0, 0], &room[2, 0, 0], &room[3, 0, 0])
                for k in range(3):
                    dsyrk(b"L", b"N", &n, &m, &one, &room[k + 1, 0, 0], &n, &one, &squares[k, 0, 0], &n)
        return total, members


def clear(double[:, :, ::1] sums):
    """Write zeros to the upper triangles of sums, (3, w, w)."""
    _check(sums.shape[0] == 3 and sums.shape[1] == sums.shape[2] > 0)
    expunge_clear(&sums[0, 0, 0], sums.shape[1])


cdef int _fill(limbs, const double[::1] scales, Py_ssize_t w, double *square) except -1:
    """Compute the matrix that limbs represent."""
    _check(w > 0 and limbs.shape == (3, w * (w + 1) // 2) and scales.shape[0] == 3)
    cdef const double[:, ::1] floats
    cdef const int64_t[:, ::1] integers
    if limbs.dtype == np.float64:
        floats = limbs
        with nogil:
            expunge_matrix(&floats[0, 0], w, &scales[0], square)
    else:
        integers = limbs.astype(np.int64, copy=False)
        with nogil:
            expunge_matrix_of_integers(&integers[0, 0], w, &scales[0], square)
    return 0


cdef const double *_rows(const double[:, ::1] table) noexcept nogil:
    return &table[0, 0] if table.shape[0] and table.shape[1] else NULL


cdef int _check(bint fits) except -1:
    if not fits:
        raise ValueError("arrays do not fit each other")
    return 0


def shuffled(const uint64_t[::1] rounds, uint64_t kind, tweak, size, x, bint backward):
    """Apply keyed permutations to numbers, each below its size: see `encoding/randomness.py`."""
    cdef const uint64_t[::1] tweaks = np.ascontiguousarray(tweak), sizes = np.ascontiguousarray(size)
    out = np.array(x, dtype=np.uint64)
    cdef uint64_t[::1] numbers = out
    if tweaks.shape[0] != numbers.shape[0] or sizes.shape[0] != numbers.shape[0]:
        raise ValueError("each number has a tweak and a size")
    if numbers.shape[0]:
        with nogil:
            expunge_shuffle(
                &rounds[0], rounds.shape[0], kind, &tweaks[0], &sizes[0], &numbers[0], numbers.shape[0], backward
            )
    return out
