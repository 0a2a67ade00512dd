/* Hot loops of the exact core, with the same bits as the NumPy code that they replace.

   Only +, -, * and rint of float64, each rounded by itself: the build forbids contraction to fused operations, and
   every rounded sum has NumPy's order. So the result depends neither on the compiler nor on the processor. */

#ifndef EXPUNGE_KERNELS_H
#define EXPUNGE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { EXPUNGE_TILE = 32, EXPUNGE_BLOCK = 32, EXPUNGE_TERMS = 8, EXPUNGE_PANEL = 24 };

/* Random cosine features, and how they become columns of a row. */
typedef struct {
    ptrdiff_t inputs;    /* d */
    ptrdiff_t cosines;   /* D */
    const double *turns; /* (ceil(D / 32), d + 1, 32), tile by tile: phases per unit of the grid, b in the last row */
    const double *terms; /* (8,): the polynomial of unit * cos */
    int linear;          /* whether the inputs themselves follow */
    double unit;         /* 2^F */
} expunge_map;

/* Compute unit * cos of n phases, in place; `terms` as above. */
void expunge_cosines(double *turns, ptrdiff_t n, const double *terms);

/* Compute features of n rows, (n, d) -> (n, D [+ d]), `stride` numbers apart. `scratch` has room for 32 d numbers. */
void expunge_features(const expunge_map *map, const double *scaled, ptrdiff_t n, double *scratch, double *out,
                      ptrdiff_t stride);

/* Add the features of n rows as integers, times their weights, to coded rows: row k to row `owner[k]` of each of `sets`
   arrays, (sets, m, width), with `weights`, (sets, n). */
void expunge_coded(const expunge_map *map, const double *scaled, ptrdiff_t n, const int64_t *owner,
                   const double *weights, ptrdiff_t sets, double *scratch, double *coded, ptrdiff_t m,
                   ptrdiff_t width);

/* Add the columns after the features of n rows: `ones` (0 or 1) times the unit, and t targets, as integers; `coded`
   points to the first of these columns. */
void expunge_targets(const double *targets, ptrdiff_t n, ptrdiff_t t, double unit, int ones, const int64_t *owner,
                     const double *weights, ptrdiff_t sets, double *coded, ptrdiff_t m, ptrdiff_t width);

/* Predict n rows with t linear models of the features: (n, d) -> (n, t). `weights`, (t, ceil(D / 32) * 32 + d + 1), are
   those of the cosines, with zeros up to a whole tile, of the inputs and of 1. The order of each sum does not depend on
   n. `scratch` has room for 32 d + 64 t numbers. */
void expunge_predicted(const expunge_map *map, const double *weights, ptrdiff_t t, const double *scaled, ptrdiff_t n,
                       double *scratch, double *out);

/* Compute positions between bounds, (n, d) -> (n, d), with `clamp` of the nearest values inside; 0 in a column whose
   bounds are equal. */
void expunge_scaled(const double *values, ptrdiff_t n, ptrdiff_t d, const double *low, const double *high, int clamp,
                    double *out);

/* Invert `expunge_scaled` in place, then clamp to the limits `least` and `most` unless they are NaN. */
void expunge_unscale(double *values, ptrdiff_t n, ptrdiff_t t, const double *low, const double *high,
                     const double *least, const double *most);

/* Whether all values, (n, d), are inside the bounds; NaN is no bound. */
int expunge_inside(const double *values, ptrdiff_t n, ptrdiff_t d, const double *low, const double *high);

/* Whether all of n numbers are finite. */
int expunge_finite(const double *numbers, ptrdiff_t n);

/* Compute the slices h, h + l and l of n integers: q = h * 2^18 + l. */
void expunge_slices(const double *q, ptrdiff_t n, double *high, double *both, double *low);

/* Compute limbs with coded row p in place of q: (3, P) -> (3, P), w columns. Each row is given as its slices h and l,
   (2, w), zeros for no row. Every sum is an integer that float64 holds. */
void expunge_exchanged(const double *limbs, const double *q, const double *p, ptrdiff_t w, double *out);
void expunge_exchanged_integers(const int64_t *limbs, const double *q, const double *p, ptrdiff_t w, int64_t *out);

/* Compute limbs, packed row by row, (3, P), from H'H, (H + L)'(H + L) and L'L, upper triangles of (3, w, w). */
void expunge_packed(const double *sums, ptrdiff_t w, double *limbs);

/* Whether the processor supports `expunge_multiply`. */
int expunge_multiplies(void);

/* Add sign times H'H, (H + L)'(H + L) and L'L of m coded rows, (m, w), to packed triangles, (3, P). `panels` has room
   for m times w, rounded up to a multiple of 24, numbers; 64-byte alignment makes it faster. */
void expunge_multiply(const double *q, ptrdiff_t m, ptrdiff_t w, double sign, double *panels, double *sums);

/* Turn these triangles, (3, P), into limbs, in place: H'L + L'H for (H + L)'(H + L). */
void expunge_middle(double *sums, ptrdiff_t P);

/* Compute the matrix that limbs represent, times 2^-2F: the upper triangle of (w, w); the lower one stays. */
void expunge_matrix(const double *limbs, ptrdiff_t w, const double *scales, double *square);
void expunge_matrix_of_integers(const int64_t *limbs, ptrdiff_t w, const double *scales, double *square);

/* Compute the same exchange and the matrix of the new limbs in one pass. */
void expunge_relearned(const double *limbs, const double *q, const double *p, ptrdiff_t w, double *out,
                       const double *scales, double *square);
void expunge_relearned_integers(const int64_t *limbs, const double *q, const double *p, ptrdiff_t w, int64_t *out,
                                const double *scales, double *square);

/* The lanes of one learner, and how the rows in them become integers. */
typedef struct {
    const expunge_map *map;
    const double *low, *high;   /* (d,): the bounds of the inputs; null: inputs are used as they are */
    const double *least, *most; /* (t,): the bounds of the targets */
    ptrdiff_t targets;          /* t */
    const int64_t *lanes;       /* (L,) */
    const double *weights;      /* (L,) */
    ptrdiff_t count;            /* L */
    int ones;                   /* whether there is an intercept */
} expunge_column;

/* A stripe, and the row in it that changes. */
typedef struct {
    const double *X, *y;       /* (slots, d), (slots, t); or only the rows of the lanes that have one */
    const unsigned char *live; /* (slots,), or (L,) */
    ptrdiff_t first;           /* the stripe's first slot; negative: the tables have only these rows */
    int64_t lane;              /* the lane of the row that is replaced, if it has one */
    const double *new_X, *new_y; /* the new row; null: none */
} expunge_stripe;

/* Add the rows of a stripe to its coded rows before and after the change, (2, width), which are zeros; `members` are
   the rows in each. `scratch` has room for 33 d + t numbers. */
void expunge_touched(const expunge_column *column, const expunge_stripe *stripe, double *scratch, double *coded,
                     ptrdiff_t width, ptrdiff_t members[2]);

enum { EXPUNGE_GATHERED = 256 };

/* Write the coded rows of a learner, from `stripe` up to before `last`, to (most, width), as many as fit; empty stripes
   are left out. Return how many were written; `stripe` is then the next one, and `members` has grown by their rows.
   `scratch` has room for 32 d + 256 (d + t + 1) numbers. */
ptrdiff_t expunge_shard(const expunge_column *column, const double *X, const double *y, const unsigned char *live,
                        ptrdiff_t shards, ptrdiff_t *stripe, ptrdiff_t last, double *scratch, double *coded,
                        ptrdiff_t most, ptrdiff_t width, ptrdiff_t *members);

/* Write zeros to the upper triangles of (3, w, w). */
void expunge_clear(double *sums, ptrdiff_t w);

/* Write zeros that no compiler optimises away. */
void expunge_wipe(double *numbers, ptrdiff_t n);

/* Apply keyed permutations to numbers below their sizes, in place: the network of `encoding/randomness.py`, with one
   tweak per number. `rounds` are `count` words of the key, and `kind` is another. */
void expunge_shuffle(const uint64_t *rounds, ptrdiff_t count, uint64_t kind, const uint64_t *tweaks,
                     const uint64_t *sizes, uint64_t *numbers, ptrdiff_t n, int backward);

#endif
