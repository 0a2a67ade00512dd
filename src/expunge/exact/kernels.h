/* Hot loops of the exact core, with the same bits as the passes of NumPy that they replace.

   Only +, -, * and rint of float64, each rounded by itself: the build forbids contraction to fused operations, and no
   sum that is rounded is summed in another order than NumPy's. So neither the compiler nor the processor shows. */

#ifndef EXPUNGE_KERNELS_H
#define EXPUNGE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum { EXPUNGE_TILE = 32, EXPUNGE_BLOCK = 32, EXPUNGE_TERMS = 8, EXPUNGE_PANEL = 24 };

/* Random cosine features, and how they become columns of a row. */
typedef struct {
    ptrdiff_t inputs;    /* d */
    ptrdiff_t cosines;   /* D */
    const double *turns; /* (ceil(D / 32), d + 1, 32), tile by tile: phases per unit of the grid, in the last row b */
    const double *terms; /* (8,): the polynomial of unit * cos */
    int linear;          /* whether the inputs themselves follow */
    double unit;         /* 2^F */
} expunge_map;

/* unit * cos of n phases, in place of them; `terms` as above. */
void expunge_cosines(double *turns, ptrdiff_t n, const double *terms);

/* Features of n rows, (n, d) -> (n, D [+ d]), `stride` numbers from row to row. `scratch` has room for 32 d numbers. */
void expunge_features(const expunge_map *map, const double *scaled, ptrdiff_t n, double *scratch, double *out,
                      ptrdiff_t stride);

/* The features of n rows as integers, times their weights, added to coded rows: row k to row `owner[k]` of each of
   `sets` arrays, (sets, m, width), with `weights`, (sets, n). */
void expunge_coded(const expunge_map *map, const double *scaled, ptrdiff_t n, const int64_t *owner,
                   const double *weights, ptrdiff_t sets, double *scratch, double *coded, ptrdiff_t m,
                   ptrdiff_t width);

/* The columns of n rows after their features: `ones` (0 or 1) times the unit, and t targets, as integers; `coded` is at
   the first of these columns. */
void expunge_targets(const double *targets, ptrdiff_t n, ptrdiff_t t, double unit, int ones, const int64_t *owner,
                     const double *weights, ptrdiff_t sets, double *coded, ptrdiff_t m, ptrdiff_t width);

/* What t linear models of the features predict for n rows: (n, d) -> (n, t). `weights`, (t, ceil(D / 32) * 32 + d + 1),
   are of the cosines, with zeros up to a whole tile, of the inputs and of 1. Each sum has one order, whatever n is.
   `scratch` has room for 32 d + 64 t numbers. */
void expunge_predicted(const expunge_map *map, const double *weights, ptrdiff_t t, const double *scaled, ptrdiff_t n,
                       double *scratch, double *out);

/* Where values lie between bounds, (n, d) -> (n, d): moved to the nearest inside first, if asked for; 0 in a column
   whose bounds are equal. */
void expunge_scaled(const double *values, ptrdiff_t n, ptrdiff_t d, const double *low, const double *high, int clamp,
                    double *out);

/* The way back, in place: to between `low` and `high`, and then inside of limits, where these are numbers. */
void expunge_unscale(double *values, ptrdiff_t n, ptrdiff_t t, const double *low, const double *high,
                     const double *least, const double *most);

/* Whether no value, (n, d), is outside of bounds; those that are NaN bound nothing. */
int expunge_inside(const double *values, ptrdiff_t n, ptrdiff_t d, const double *low, const double *high);

/* Whether all of n numbers are finite. */
int expunge_finite(const double *numbers, ptrdiff_t n);

/* The slices h, h + l and l of n integers: q = h * 2^18 + l. */
void expunge_slices(const double *q, ptrdiff_t n, double *high, double *both, double *low);

/* Limbs with coded row p in the place of q: (3, P) -> (3, P), w columns. Each comes as its slices h and l, (2, w),
   zeros if there is none. Every sum is an integer that float64 holds. */
void expunge_exchanged(const double *limbs, const double *q, const double *p, ptrdiff_t w, double *out);
void expunge_exchanged_integers(const int64_t *limbs, const double *q, const double *p, ptrdiff_t w, int64_t *out);

/* Limbs from H'H, (H + L)'(H + L) and L'L, upper triangles of (3, w, w): the triangles packed row by row, (3, P). */
void expunge_packed(const double *sums, ptrdiff_t w, double *limbs);

/* Whether the processor has what `expunge_multiply` takes. */
int expunge_multiplies(void);

/* Add sign times H'H, (H + L)'(H + L) and L'L of m coded rows, (m, w), to packed triangles, (3, P). `panels` has room for
   m times w, rounded up to a multiple of 24, numbers; it is faster if it begins at a multiple of 64 bytes. */
void expunge_multiply(const double *q, ptrdiff_t m, ptrdiff_t w, double sign, double *panels, double *sums);

/* Such triangles, (3, P), as limbs, in their place: H'L + L'H for (H + L)'(H + L). */
void expunge_middle(double *sums, ptrdiff_t P);

/* The matrix that limbs stand for, times 2^-2F: the upper triangle of (w, w); what is below it stays. */
void expunge_matrix(const double *limbs, ptrdiff_t w, const double *scales, double *square);
void expunge_matrix_of_integers(const int64_t *limbs, ptrdiff_t w, const double *scales, double *square);

/* The same exchange, and the matrix that the new limbs stand for, in one pass. */
void expunge_relearned(const double *limbs, const double *q, const double *p, ptrdiff_t w, double *out,
                       const double *scales, double *square);
void expunge_relearned_integers(const int64_t *limbs, const double *q, const double *p, ptrdiff_t w, int64_t *out,
                                const double *scales, double *square);

/* The lanes of one learner, and how the rows in them become integers. */
typedef struct {
    const expunge_map *map;
    const double *low, *high;   /* (d,): the bounds of the inputs; null: these are taken as they are */
    const double *least, *most; /* (t,): those of the targets */
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
    int64_t lane;              /* whose row goes, if there is one */
    const double *new_X, *new_y; /* the row that comes; null: none */
} expunge_stripe;

/* Add the rows of a stripe to its coded rows before and after the change, (2, width), which are zeros; `members` are
   the rows in each. `scratch` has room for 33 d + t numbers. */
void expunge_touched(const expunge_column *column, const expunge_stripe *stripe, double *scratch, double *coded,
                     ptrdiff_t width, ptrdiff_t members[2]);

enum { EXPUNGE_GATHERED = 256 };

/* Write the coded rows of a learner, from a stripe on and before the last, into (most, width), as many as there is room
   for; stripes without a row are left out. Return how many; `stripe` is then the next one, and `members` has grown by
   the rows in them. `scratch` has room for 32 d + 256 (d + t + 1) numbers. */
ptrdiff_t expunge_shard(const expunge_column *column, const double *X, const double *y, const unsigned char *live,
                        ptrdiff_t shards, ptrdiff_t *stripe, ptrdiff_t last, double *scratch, double *coded,
                        ptrdiff_t most, ptrdiff_t width, ptrdiff_t *members);

/* Zeros in the upper triangles of (3, w, w). */
void expunge_clear(double *sums, ptrdiff_t w);

/* Zeros that no compiler leaves out. */
void expunge_wipe(double *numbers, ptrdiff_t n);

/* Keyed permutations of numbers below their sizes, in place: the network of `encoding/shuffle.py`, with the hash of one
   `tweak` each. `rounds` are words of the key, `count` of them, and `kind` another. */
void expunge_shuffle(const uint64_t *rounds, ptrdiff_t count, uint64_t kind, const uint64_t *tweaks,
                     const uint64_t *sizes, uint64_t *numbers, ptrdiff_t n, int backward);

#endif
