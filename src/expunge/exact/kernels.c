#include "kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "float64 must be computed in float64: in wider registers results would have other bits"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math would give other bits"
#endif

/* If the C library can choose at run time, the compiler makes a version of a loop for each register width. */
#define CLONES
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute) && !defined(EXPUNGE_NO_CLONES)
#if __has_attribute(target_clones)
#undef CLONES
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#define INLINE static inline __attribute__((always_inline))

enum { TILE = EXPUNGE_TILE, BLOCK = EXPUNGE_BLOCK, ROWS = 2 };

static const double GRID = 4294967296.0;         /* 2^32: inputs are whole multiples of its inverse */
static const double FARTHEST = 18446744073709551616.0; /* 2^64: so that any finite input has a finite phase */

INLINE double on_grid(double x)
{
    x = x < FARTHEST ? x : FARTHEST;
    x = x > -FARTHEST ? x : -FARTHEST;
    return rint(x * GRID);
}

/* unit * cos(2 pi t): around a quarter turn cos is odd, so one polynomial is enough. */
INLINE double cosine(double turn, const double *terms)
{
    turn = fabs(turn - rint(turn)) - 0.25; /* exact; cos(2 pi t) = -sin(2 pi (|t| - 1/4)) */
    double square = turn * turn, sum = square * terms[EXPUNGE_TERMS - 1];
    for (int k = EXPUNGE_TERMS - 2; k > 0; k--)
        sum = (sum + terms[k]) * square;
    return (sum + terms[0]) * turn;
}

/* unit * cos of the phases of a few rows in one tile of columns. A phase is summed in the order of the inputs, b last:
   within [-1, 1] every partial sum is exact, beyond it the fixed order determines the rounding. */
INLINE void cosines(const double *grid, ptrdiff_t d, const double *turns, const double *terms, int rows,
                    double value[ROWS][TILE])
{
    double t[ROWS][TILE];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < TILE; j++)
            t[r][j] = grid[r * d] * turns[j];
    for (ptrdiff_t i = 1; i < d; i++)
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < TILE; j++)
                t[r][j] += grid[r * d + i] * turns[i * TILE + j];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < TILE; j++)
            value[r][j] = cosine(t[r][j] + turns[d * TILE + j], terms);
}

INLINE void put_on_grid(const double *scaled, ptrdiff_t n, double *grid)
{
    for (ptrdiff_t i = 0; i < n; i++)
        grid[i] = on_grid(scaled[i]);
}

INLINE ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

CLONES void expunge_cosines(double *turns, ptrdiff_t n, const double *terms)
{
    double copied[EXPUNGE_TERMS];
    for (int k = 0; k < EXPUNGE_TERMS; k++)
        copied[k] = terms[k];
    for (ptrdiff_t i = 0; i < n; i++)
        turns[i] = cosine(turns[i], copied);
}

/* The destination of features: rows of their own, or, rounded and weighted, coded rows. */
typedef struct {
    double *out;           /* (n, width), or (sets, m, width) */
    ptrdiff_t width, m, n; /* numbers per row, coded rows, rows */
    const int64_t *owner;  /* (n,) */
    const double *weights; /* (sets, n) */
    ptrdiff_t sets;        /* 0: rows of their own */
} sink;

INLINE void put(const sink *to, ptrdiff_t row, ptrdiff_t column, const double *value, ptrdiff_t count)
{
    if (!to->sets) {
        double *out = to->out + row * to->width + column;
        for (ptrdiff_t j = 0; j < count; j++)
            out[j] = value[j];
        return;
    }
    for (ptrdiff_t set = 0; set < to->sets; set++) {
        const double weight = to->weights[set * to->n + row];
        double *out = to->out + (set * to->m + to->owner[row]) * to->width + column;
        if (weight != 0.0)
            for (ptrdiff_t j = 0; j < count; j++)
                out[j] += weight * rint(value[j]);
    }
}

/* Put a tile, whose length the compiler knows unless it is the last one. */
INLINE void put_tile(const sink *to, ptrdiff_t row, ptrdiff_t column, const double *value, ptrdiff_t count)
{
    if (count >= TILE)
        put(to, row, column, value, TILE);
    else
        put(to, row, column, value, count);
}

INLINE void map_rows(const expunge_map *map, const double *scaled, ptrdiff_t n, double *scratch, const sink *to)
{
    const ptrdiff_t d = map->inputs, D = map->cosines;
    double value[ROWS][TILE];
    for (ptrdiff_t first = 0; first < n; first += BLOCK) {
        const ptrdiff_t rows = least(BLOCK, n - first);
        const double *turns = map->turns;
        put_on_grid(scaled + first * d, rows * d, scratch);
        for (ptrdiff_t j = 0; j < D; j += TILE, turns += (d + 1) * TILE) {
            ptrdiff_t r = 0;
            for (; r + ROWS <= rows; r += ROWS) {
                cosines(scratch + r * d, d, turns, map->terms, ROWS, value);
                for (int k = 0; k < ROWS; k++)
                    put_tile(to, first + r + k, j, value[k], D - j);
            }
            for (; r < rows; r++) {
                cosines(scratch + r * d, d, turns, map->terms, 1, value);
                put_tile(to, first + r, j, value[0], D - j);
            }
        }
        if (map->linear) {
            for (ptrdiff_t i = 0; i < rows * d; i++)
                scratch[i] = scaled[first * d + i] * map->unit;
            for (ptrdiff_t r = 0; r < rows; r++)
                put(to, first + r, D, scratch + r * d, d);
        }
    }
}

CLONES void expunge_features(const expunge_map *map, const double *scaled, ptrdiff_t n, double *scratch, double *out,
                             ptrdiff_t stride)
{
    const sink to = {out, stride, 0, n, 0, 0, 0};
    map_rows(map, scaled, n, scratch, &to);
}

CLONES void expunge_coded(const expunge_map *map, const double *scaled, ptrdiff_t n, const int64_t *owner,
                          const double *weights, ptrdiff_t sets, double *scratch, double *coded, ptrdiff_t m,
                          ptrdiff_t width)
{
    const sink to = {coded, width, m, n, owner, weights, sets};
    map_rows(map, scaled, n, scratch, &to);
}

INLINE void weigh(const double *value, const double *weights, ptrdiff_t t, ptrdiff_t stride, double *sums)
{
    for (ptrdiff_t k = 0; k < t; k++)
        for (int j = 0; j < TILE; j++)
            sums[k * TILE + j] += value[j] * weights[k * stride + j];
}

/* Sum a tile by halves. */
INLINE double total(double *sums)
{
    for (int half = TILE / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            sums[j] += sums[j + half];
    return sums[0];
}

CLONES void expunge_predicted(const expunge_map *map, const double *weights, ptrdiff_t t, const double *scaled,
                              ptrdiff_t n, double *scratch, double *out)
{
    const ptrdiff_t d = map->inputs, tiles = (map->cosines + TILE - 1) / TILE, stride = tiles * TILE + d + 1;
    double value[ROWS][TILE], *sums = scratch + BLOCK * d;
    for (ptrdiff_t first = 0; first < n; first += ROWS) {
        const int rows = (int)least(ROWS, n - first);
        put_on_grid(scaled + first * d, rows * d, scratch);
        for (ptrdiff_t i = 0; i < ROWS * t * TILE; i++)
            sums[i] = 0.0;
        for (ptrdiff_t tile = 0; tile < tiles; tile++) {
            const double *turns = map->turns + tile * (d + 1) * TILE, *mine = weights + tile * TILE;
            if (rows == ROWS) {
                cosines(scratch, d, turns, map->terms, ROWS, value);
                for (int r = 0; r < ROWS; r++)
                    weigh(value[r], mine, t, stride, sums + r * t * TILE);
            } else {
                cosines(scratch, d, turns, map->terms, 1, value);
                weigh(value[0], mine, t, stride, sums);
            }
        }
        for (int r = 0; r < rows; r++)
            for (ptrdiff_t k = 0; k < t; k++) {
                const double *rest = weights + k * stride + tiles * TILE;
                double sum = total(sums + (r * t + k) * TILE);
                if (map->linear)
                    for (ptrdiff_t i = 0; i < d; i++)
                        sum += scaled[(first + r) * d + i] * map->unit * rest[i];
                out[(first + r) * t + k] = sum + rest[d];
            }
    }
}

void expunge_scaled(const double *values, ptrdiff_t n, ptrdiff_t d, const double *low, const double *high, int clamp,
                    double *out)
{
    for (ptrdiff_t r = 0; r < n; r++)
        for (ptrdiff_t i = 0; i < d; i++) {
            double x = values[r * d + i];
            if (clamp) {
                x = x < low[i] ? low[i] : x;
                x = x > high[i] ? high[i] : x;
            }
            out[r * d + i] = high[i] == low[i] ? 0.0 : (x - low[i]) / (high[i] - low[i]);
        }
}

void expunge_unscale(double *values, ptrdiff_t n, ptrdiff_t t, const double *low, const double *high,
                     const double *least, const double *most)
{
    for (ptrdiff_t r = 0; r < n; r++)
        for (ptrdiff_t k = 0; k < t; k++) {
            double value = values[r * t + k] * (high[k] - low[k]) + low[k];
            value = value < least[k] ? least[k] : value; /* NaN limits nothing */
            values[r * t + k] = value > most[k] ? most[k] : value;
        }
}

int expunge_inside(const double *values, ptrdiff_t n, ptrdiff_t d, const double *low, const double *high)
{
    int outside = 0;
    for (ptrdiff_t r = 0; r < n; r++)
        for (ptrdiff_t i = 0; i < d; i++)
            outside |= (values[r * d + i] < low[i]) | (values[r * d + i] > high[i]);
    return !outside;
}

int expunge_finite(const double *numbers, ptrdiff_t n)
{
    double zero = 0.0;
    for (ptrdiff_t i = 0; i < n; i++)
        zero += numbers[i] * 0.0; /* NaN for NaN and infinities */
    return zero == 0.0;
}

void expunge_targets(const double *targets, ptrdiff_t n, ptrdiff_t t, double unit, int ones, const int64_t *owner,
                     const double *weights, ptrdiff_t sets, double *coded, ptrdiff_t m, ptrdiff_t width)
{
    for (ptrdiff_t set = 0; set < sets; set++)
        for (ptrdiff_t r = 0; r < n; r++) {
            const double weight = weights[set * n + r];
            double *out = coded + (set * m + owner[r]) * width;
            if (ones)
                out[0] += weight * unit;
            for (ptrdiff_t k = 0; k < t; k++)
                out[ones + k] += weight * rint(targets[r * t + k] * unit);
        }
}

CLONES void expunge_slices(const double *q, ptrdiff_t n, double *high, double *both, double *low)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double h = rint(q[i] * 0x1p-18), l = q[i] - h * 0x1p18;
        high[i] = h;
        both[i] = h + l;
        low[i] = l;
    }
}

/* A row of the triangle of each limb: subtract the products of one entry of q with the entries from there on, and add
   those of p. */
#define EXCHANGED(NAME, KIND)                                                                                        \
    INLINE void row_of_##NAME(const KIND *restrict a, const KIND *restrict b, const KIND *restrict c,                \
                              const double *restrict qh, const double *restrict ql, const double *restrict ph,       \
                              const double *restrict pl, ptrdiff_t n, KIND *restrict A, KIND *restrict B,            \
                              KIND *restrict C)                                                                      \
    {                                                                                                                \
        const double gone = qh[0], gone_low = ql[0], came = ph[0], came_low = pl[0];                                 \
        for (ptrdiff_t i = 0; i < n; i++) {                                                                          \
            A[i] = a[i] + (KIND)(came * ph[i] - gone * qh[i]);                                                       \
            B[i] = b[i] + (KIND)((came * pl[i] + came_low * ph[i]) - (gone * ql[i] + gone_low * qh[i]));             \
            C[i] = c[i] + (KIND)(came_low * pl[i] - gone_low * ql[i]);                                               \
        }                                                                                                            \
    }                                                                                                                \
    CLONES void NAME(const KIND *limbs, const double *q, const double *p, ptrdiff_t w, KIND *out)                    \
    {                                                                                                                \
        const ptrdiff_t P = w * (w + 1) / 2;                                                                         \
        for (ptrdiff_t j = 0, at = 0; j < w; at += w - j, j++)                                                       \
            row_of_##NAME(limbs + at, limbs + P + at, limbs + 2 * P + at, q + j, q + w + j, p + j, p + w + j, w - j, \
                          out + at, out + P + at, out + 2 * P + at);                                                 \
    }

EXCHANGED(expunge_exchanged, double)
EXCHANGED(expunge_exchanged_integers, int64_t)

CLONES void expunge_packed(const double *sums, ptrdiff_t w, double *limbs)
{
    const ptrdiff_t P = w * (w + 1) / 2;
    for (ptrdiff_t j = 0, start = 0; j < w; start += w - j, j++) {
        const double *high = sums + j * (w + 1), *both = high + w * w, *low = both + w * w;
        double *A = limbs + start, *B = A + P, *C = B + P;
        for (ptrdiff_t i = 0; i < w - j; i++) {
            A[i] = high[i];
            B[i] = both[i] - high[i] - low[i];
            C[i] = low[i];
        }
    }
}

CLONES void expunge_middle(double *sums, ptrdiff_t P)
{
    for (ptrdiff_t i = 0; i < P; i++)
        sums[P + i] -= sums[i] + sums[2 * P + i];
}

#define MATRIX(NAME, KIND)                                                                                           \
    INLINE void row_of_##NAME(const KIND *restrict a, const KIND *restrict b, const KIND *restrict c,                \
                              const double *scales, ptrdiff_t n, double *restrict row)                               \
    {                                                                                                                \
        const double high = scales[0], middle = scales[1], low = scales[2];                                          \
        for (ptrdiff_t i = 0; i < n; i++)                                                                            \
            row[i] = (double)a[i] * high + ((double)b[i] * middle + (double)c[i] * low);                             \
    }                                                                                                                \
    CLONES void NAME(const KIND *limbs, ptrdiff_t w, const double *scales, double *square)                           \
    {                                                                                                                \
        const ptrdiff_t P = w * (w + 1) / 2;                                                                         \
        for (ptrdiff_t j = 0, at = 0; j < w; at += w - j, j++)                                                       \
            row_of_##NAME(limbs + at, limbs + P + at, limbs + 2 * P + at, scales, w - j, square + j * (w + 1));      \
    }

MATRIX(expunge_matrix, double)
MATRIX(expunge_matrix_of_integers, int64_t)

/* A row of the matrix is filled while its limbs are in the cache. */
#define RELEARNED(NAME, KIND, EXCHANGE, FILL)                                                                        \
    CLONES void NAME(const KIND *limbs, const double *q, const double *p, ptrdiff_t w, KIND *out,                    \
                     const double *scales, double *square)                                                           \
    {                                                                                                                \
        const ptrdiff_t P = w * (w + 1) / 2;                                                                         \
        for (ptrdiff_t j = 0, at = 0; j < w; at += w - j, j++) {                                                     \
            KIND *A = out + at, *B = A + P, *C = B + P;                                                              \
            row_of_##EXCHANGE(limbs + at, limbs + P + at, limbs + 2 * P + at, q + j, q + w + j, p + j, p + w + j,    \
                              w - j, A, B, C);                                                                       \
            row_of_##FILL(A, B, C, scales, w - j, square + j * (w + 1));                                             \
        }                                                                                                            \
    }

RELEARNED(expunge_relearned, double, expunge_exchanged, expunge_matrix)
RELEARNED(expunge_relearned_integers, int64_t, expunge_exchanged_integers, expunge_matrix_of_integers)

static void add_row(const expunge_column *column, const double *x, const double *y, const double weights[2],
                    double *scratch, double *coded, ptrdiff_t width)
{
    const expunge_map *map = column->map;
    const ptrdiff_t d = map->inputs, t = column->targets;
    const int64_t owner = 0;
    double *scaled = scratch + BLOCK * d, *targets = scaled + d;
    if (column->low)
        expunge_scaled(x, 1, d, column->low, column->high, 0, scaled);
    if (column->least)
        expunge_scaled(y, 1, t, column->least, column->most, 0, targets);
    expunge_coded(map, column->low ? scaled : x, 1, &owner, weights, 2, scratch, coded, 1, width);
    expunge_targets(column->least ? targets : y, 1, t, map->unit, column->ones, &owner, weights, 2,
                    coded + width - t - column->ones, 1, width);
}

void expunge_touched(const expunge_column *column, const expunge_stripe *stripe, double *scratch, double *coded,
                     ptrdiff_t width, ptrdiff_t members[2])
{
    const ptrdiff_t d = column->map->inputs, t = column->targets;
    members[0] = members[1] = 0;
    for (ptrdiff_t k = 0; k < column->count; k++) {
        const ptrdiff_t slot = stripe->first < 0 ? k : stripe->first + column->lanes[k];
        const int changes = column->lanes[k] == stripe->lane;
        if (stripe->live[slot]) {
            const ptrdiff_t at = stripe->first < 0 ? members[0] : slot;
            const double weights[2] = {column->weights[k], changes ? 0.0 : column->weights[k]};
            add_row(column, stripe->X + at * d, stripe->y + at * t, weights, scratch, coded, width);
            members[0]++;
            members[1] += !changes;
        }
        if (changes && stripe->new_X) {
            const double weights[2] = {0.0, column->weights[k]};
            add_row(column, stripe->new_X, stripe->new_y, weights, scratch, coded, width);
            members[1]++;
        }
    }
}

/* Rows that are collected before they are added to coded rows. */
typedef struct {
    double *scaled, *targets, *weights; /* (256, d), (256, t), (256,) */
    int64_t owner[EXPUNGE_GATHERED];
    ptrdiff_t n;
} gathered;

static void gather(const expunge_column *column, const double *x, const double *y, double weight, ptrdiff_t owner,
                   gathered *some)
{
    const ptrdiff_t d = column->map->inputs, t = column->targets;
    double *scaled = some->scaled + some->n * d, *targets = some->targets + some->n * t;
    if (column->low)
        expunge_scaled(x, 1, d, column->low, column->high, 0, scaled);
    else
        memcpy(scaled, x, (size_t)d * sizeof *x);
    if (column->least)
        expunge_scaled(y, 1, t, column->least, column->most, 0, targets);
    else
        memcpy(targets, y, (size_t)t * sizeof *y);
    some->weights[some->n] = weight;
    some->owner[some->n++] = owner;
}

static void add_gathered(const expunge_column *column, gathered *some, double *scratch, double *coded, ptrdiff_t most,
                         ptrdiff_t width)
{
    const ptrdiff_t t = column->targets;
    expunge_coded(column->map, some->scaled, some->n, some->owner, some->weights, 1, scratch, coded, most, width);
    expunge_targets(some->targets, some->n, t, column->map->unit, column->ones, some->owner, some->weights, 1,
                    coded + width - t - column->ones, most, width);
    some->n = 0;
}

ptrdiff_t expunge_shard(const expunge_column *column, const double *X, const double *y, const unsigned char *live,
                        ptrdiff_t shards, ptrdiff_t *stripe, ptrdiff_t last, double *scratch, double *coded,
                        ptrdiff_t most, ptrdiff_t width, ptrdiff_t *members)
{
    const ptrdiff_t d = column->map->inputs, t = column->targets;
    ptrdiff_t filled = 0;
    gathered some;
    some.scaled = scratch + BLOCK * d;
    some.targets = some.scaled + EXPUNGE_GATHERED * d;
    some.weights = some.targets + EXPUNGE_GATHERED * t;
    some.n = 0;
    memset(coded, 0, (size_t)(most * width) * sizeof *coded);
    for (; *stripe < last && filled < most; ++*stripe) {
        const ptrdiff_t before = *members;
        for (ptrdiff_t k = 0; k < column->count; k++) {
            const ptrdiff_t slot = *stripe * shards + column->lanes[k];
            if (!live[slot])
                continue;
            gather(column, X + slot * d, y + slot * t, column->weights[k], filled, &some);
            ++*members;
            if (some.n == EXPUNGE_GATHERED)
                add_gathered(column, &some, scratch, coded, most, width);
        }
        filled += *members > before;
    }
    add_gathered(column, &some, scratch, coded, most, width);
    return filled;
}

void expunge_clear(double *sums, ptrdiff_t w)
{
    for (ptrdiff_t k = 0; k < 3; k++)
        for (ptrdiff_t j = 0; j < w; j++)
            memset(sums + k * w * w + j * (w + 1), 0, (size_t)(w - j) * sizeof *sums);
}

void expunge_wipe(double *numbers, ptrdiff_t n)
{
    memset(numbers, 0, (size_t)n * sizeof *numbers);
    __asm__ __volatile__("" : : "r"(numbers) : "memory"); /* makes the compiler assume that the zeros are read */
}

/* Keyed permutations: see `encoding/randomness.py`. Integers modulo 2^64 throughout, and one square root. */

static const uint64_t ODD = 0x9E3779B97F4A7C15u;

INLINE uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Apply the network once to up to BLOCK contiguous numbers. */
CLONES static void network(const uint64_t *rounds, ptrdiff_t count, const uint64_t *hashed, const uint64_t *sizes,
                           uint64_t *numbers, ptrdiff_t n, int backward)
{
    uint64_t halves[2][BLOCK], sides[2][BLOCK];
    for (ptrdiff_t i = 0; i < n; i++) {
        sides[0][i] = (uint64_t)sqrt((double)sizes[i]) + 1;
        sides[1][i] = (sizes[i] - 1) / sides[0][i] + 1;
        halves[0][i] = numbers[i] / sides[1][i];
        halves[1][i] = numbers[i] % sides[1][i];
    }
    for (ptrdiff_t step = 0; step < count; step++) {
        ptrdiff_t k = backward ? count - 1 - step : step;
        uint64_t *one = halves[k % 2], *side = sides[k % 2], *other = halves[1 - k % 2];
        for (ptrdiff_t i = 0; i < n; i++) {
            uint64_t by = ((mixed(other[i] * ODD + (hashed[i] + rounds[k])) >> 32) * side[i]) >> 32;
            uint64_t moved = one[i] + (backward ? side[i] - by : by);
            one[i] = moved >= side[i] ? moved - side[i] : moved;
        }
    }
    for (ptrdiff_t i = 0; i < n; i++)
        numbers[i] = halves[0][i] * sides[1][i] + halves[1][i];
}

void expunge_shuffle(const uint64_t *rounds, ptrdiff_t count, uint64_t kind, const uint64_t *tweaks,
                     const uint64_t *sizes, uint64_t *numbers, ptrdiff_t n, int backward)
{
    for (ptrdiff_t first = 0; first < n; first += BLOCK) {
        ptrdiff_t some = n - first < BLOCK ? n - first : BLOCK, left = some;
        uint64_t hashed[BLOCK], size[BLOCK], number[BLOCK];
        ptrdiff_t place[BLOCK];
        for (ptrdiff_t i = 0; i < some; i++) {
            hashed[i] = mixed(tweaks[first + i] * ODD + kind);
            size[i] = sizes[first + i];
            number[i] = numbers[first + i];
            place[i] = first + i;
        }
        while (left > 0) { /* numbers beyond their size go through the network again */
            network(rounds, count, hashed, size, number, left, backward);
            ptrdiff_t beyond = 0;
            for (ptrdiff_t i = 0; i < left; i++) {
                numbers[place[i]] = number[i];
                if (number[i] >= size[i]) {
                    hashed[beyond] = hashed[i];
                    size[beyond] = size[i];
                    number[beyond] = number[i];
                    place[beyond++] = place[i];
                }
            }
            left = beyond;
        }
    }
}
