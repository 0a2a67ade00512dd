/* Products of coded rows on processors with AVX-512: the same as three calls of BLAS, directly in packed triangles.

   Every product and every sum of them is an integer that float64 holds (see limbs.py), so the result depends neither on
   the order of a sum nor on fused operations. */

#include "kernels.h"

#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f")))
#define INLINE WIDE static inline __attribute__((always_inline))

/* Columns are stored in panels, (m, 24), one after another: a tile of the triangle has the products of eight columns
   with up to 24. GROUP panels stay in the L2 cache while all columns before them are multiplied with them. */
enum { LANES = 8, VECTORS = 3, PANEL = EXPUNGE_PANEL, GROUP = 8 };

INLINE double slice_of(double q, int which)
{
    const double high = rint(q * 0x1p-18), low = q - high * 0x1p18;
    return which == 0 ? high : which == 1 ? high + low : low;
}

INLINE void lay_out(const double *q, ptrdiff_t m, ptrdiff_t w, int which, double *panels)
{
    for (ptrdiff_t k = 0; k < m; k++, q += w, panels += PANEL) {
        ptrdiff_t i = 0;
        for (; i + PANEL <= w; i += PANEL)
            for (int c = 0; c < PANEL; c++)
                panels[i * m + c] = slice_of(q[i + c], which);
        if (i < w)
            for (int c = 0; c < PANEL; c++)
                panels[i * m + c] = i + c < w ? slice_of(q[i + c], which) : 0.0;
    }
}

/* The mask of those of eight entries of row j, from column i on, that are in the triangle. */
INLINE __mmask8 inside(ptrdiff_t i, ptrdiff_t j, ptrdiff_t w)
{
    unsigned lanes = 255;
    if (i < j)
        lanes <<= j - i;
    if (w - i < LANES)
        lanes &= (1u << (w - i)) - 1;
    return (__mmask8)lanes;
}

/* Add the products of columns from i on (a: `vectors` times eight) with eight columns from j on (b) to a triangle. */
INLINE void add_tile(const double *a, ptrdiff_t i, int vectors, const double *b, ptrdiff_t j, ptrdiff_t m, ptrdiff_t w,
                     double sign, double *triangle)
{
    __m512d sums[LANES][VECTORS], some[VECTORS];
    for (int r = 0; r < LANES; r++)
        for (int v = 0; v < vectors; v++)
            sums[r][v] = _mm512_setzero_pd();
    for (ptrdiff_t k = 0; k < m; k++, a += PANEL, b += PANEL) {
        for (int v = 0; v < vectors; v++)
            some[v] = _mm512_loadu_pd(a + v * LANES);
        for (int r = 0; r < LANES; r++)
            for (int v = 0; v < vectors; v++)
                sums[r][v] = _mm512_fmadd_pd(some[v], _mm512_set1_pd(b[r]), sums[r][v]);
    }
    for (int r = 0; r < LANES; r++) {
        if (j + r >= w)
            continue;
        double *row = triangle + (j + r) * (2 * w - (j + r) - 1) / 2; /* entry (j + r, i) is row[i] */
        for (int v = 0; v < vectors; v++) {
            double *at = row + i + v * LANES;
            const __mmask8 lanes = inside(i + v * LANES, j + r, w);
            const __m512d before = _mm512_maskz_loadu_pd(lanes, at);
            _mm512_mask_storeu_pd(at, lanes, _mm512_fmadd_pd(sums[r][v], _mm512_set1_pd(sign), before));
        }
    }
}

/* Add the products of all columns in panels. */
WIDE static void add_products(const double *panels, ptrdiff_t m, ptrdiff_t w, double sign, double *triangle)
{
    for (ptrdiff_t group = 0; group < w; group += GROUP * PANEL) {
        const ptrdiff_t end = w - group < GROUP * PANEL ? w : group + GROUP * PANEL;
        for (ptrdiff_t j = 0; j < end; j += LANES) {
            const double *b = panels + j / PANEL * PANEL * m + j % PANEL;
            for (ptrdiff_t panel = group > j ? group : j / PANEL * PANEL; panel < end; panel += PANEL) {
                const ptrdiff_t i = j > panel ? j : panel; /* entries left of j are below the diagonal */
                const double *a = panels + panel * m + (i - panel);
                const ptrdiff_t last = w - panel < PANEL ? w : panel + PANEL;
                if (last - i > 2 * LANES)
                    add_tile(a, i, 3, b, j, m, w, sign, triangle);
                else if (last - i > LANES)
                    add_tile(a, i, 2, b, j, m, w, sign, triangle);
                else
                    add_tile(a, i, 1, b, j, m, w, sign, triangle);
            }
        }
    }
}

int expunge_multiplies(void)
{
    return __builtin_cpu_supports("avx512f") != 0;
}

WIDE void expunge_multiply(const double *q, ptrdiff_t m, ptrdiff_t w, double sign, double *panels, double *sums)
{
    const ptrdiff_t P = w * (w + 1) / 2;
    lay_out(q, m, w, 0, panels);
    add_products(panels, m, w, sign, sums);
    lay_out(q, m, w, 1, panels);
    add_products(panels, m, w, sign, sums + P);
    lay_out(q, m, w, 2, panels);
    add_products(panels, m, w, sign, sums + 2 * P);
}

#else

int expunge_multiplies(void)
{
    return 0;
}

void expunge_multiply(const double *q, ptrdiff_t m, ptrdiff_t w, double sign, double *panels, double *sums)
{
    (void)q, (void)m, (void)w, (void)sign, (void)panels, (void)sums; /* never called */
}

#endif
