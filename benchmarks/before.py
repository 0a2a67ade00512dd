"""Before: what the same benchmark printed when every pass was NumPy's, as our time over the other's."""

REFIT, FACTOR = "the same, bare BLAS", "one Cholesky"
OWN, BOTH = "own products", "own products and Cholesky"
FLOATS = "np.cos and a product, unchecked"

BEFORE = {
    ("forget 1 row, computer-activity D=25, s=20, rate 5", REFIT): 5.32,
    ("forget 1 row, computer-activity D=25, s=20, uncoded", REFIT): 4.50,
    ("forget 1 row, power-plant D=20, s=20, rate 5", REFIT): 5.66,
    ("forget 1 row, power-plant D=20, s=20, uncoded", REFIT): 4.67,
    ("forget 1 row, protein D=300, s=1", FACTOR): 2.66,
    ("forget 1 row, protein D=300, s=20, rate 5", FACTOR): 3.46,
    ("forget 1 row, protein D=300, s=20, uncoded", FACTOR): 2.93,
    ("forget 1 row, synthetic 20,000 x 10, D=300, s=5, rate 5", FACTOR): 3.20,
    ("forget 1 row, synthetic 20,000 x 10, D=1,000, s=5, rate 5", FACTOR): 1.43,
    ("forget 1 row, synthetic 20,000 x 10, D=2,000, s=5, rate 5", FACTOR): 1.26,
    ("forget 1,000 rows at once, protein D=300, s=5, rate 5", BOTH): 2.35,
    ("train, protein, D=300, s=20, rate 5", OWN): 3.57,
    ("train, synthetic 20,000 x 10, D=1,000, s=20, rate 5", OWN): 1.75,
    ("train, synthetic 20,000 x 10, D=2,000, s=20, rate 5", OWN): 1.96,
    ("train, protein D=300, s=1", "one Ridge"): 1.36,
    ("predict 1 row, protein D=300", FLOATS): 15.33,
    ("predict 100,000 rows, protein D=300", FLOATS): 1 / 2.36,
}
