import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.encoding.randomness import as_generator, derive_seed, draw_key, random_words
from expunge.errors import InvalidSetting

from support.sampling import examples

WORD = 2**64 - 1


def philox4x64(counter, key):
    """Ten rounds in Python integers, from the publication."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * c[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * c[2], 2**64)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B97F4A7C15) & WORD, (k[1] + 0xBB67AE8584CAA73B) & WORD]
    return c


# kat_vectors of Random123: counter, key, output of philox4x64-10.
KNOWN = [
    ([0] * 4, [0] * 2, "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"),
    ([WORD] * 4, [WORD] * 2, "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0"),
    (
        [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89],
        [0x452821E638D01377, 0xBE5466CF34E90C6C],
        "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6",
    ),
]

uint64s = st.integers(0, WORD)
keys = st.tuples(uint64s, uint64s).map(lambda pair: np.array(pair, dtype=np.uint64))
KEY = np.array([1, 2], dtype=np.uint64)


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN)
def test_philox_gives_the_published_words(counter, key, output):
    before = (sum(c << (64 * i) for i, c in enumerate(counter)) - 1) % 2**256  # NumPy counts first
    start = np.array([(before >> (64 * i)) & WORD for i in range(4)], dtype=np.uint64)
    numpy = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=start)
    assert [f"{word:016x}" for word in numpy.random_raw(4)] == output.split()
    assert [f"{word:016x}" for word in philox4x64(counter, key)] == output.split()


@examples(50)
@given(keys, st.integers(0, 2**63), st.integers(0, 2**40), st.integers(1, 20))
def test_words_are_those_of_the_published_generator(key, stream, start, count):
    expected = [philox4x64([i // 4 + 1, 0, 0, stream], key.tolist())[i % 4] for i in range(start, start + count)]
    assert random_words(key, stream, start, count).tolist() == expected


@examples(50)
@given(keys, st.integers(0, 5), st.integers(0, 60), st.integers(0, 60))
def test_any_part_of_the_sequence_is_a_cut_of_the_whole(key, stream, start, count):
    whole = random_words(key, stream, 0, 120)
    part = random_words(key, stream, start, count)
    assert part.dtype == np.uint64
    assert part.tolist() == whole[start : start + count].tolist()


def test_streams_and_keys_differ():
    sequences = [
        random_words(np.array(key, dtype=np.uint64), stream, 0, 8).tolist()
        for key in [(0, 0), (0, 1), (1, 0)]
        for stream in range(3)
    ]
    assert len({word for sequence in sequences for word in sequence}) == 9 * 8


def test_a_derived_seed_is_the_top_31_bits_of_its_word():
    seeds = [derive_seed(KEY, 2, position) for position in range(50)]
    assert seeds == [int(word) >> 33 for word in random_words(KEY, 2, 0, 50)]
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)
    assert len(set(seeds)) == 50
    assert max(seeds) > 2**30
    np.random.RandomState(max(seeds))  # what scikit-learn makes of it


def test_a_key_has_128_bits_and_comes_from_the_generator():
    draws = [draw_key(np.random.default_rng(seed)) for seed in range(20)]
    assert all(key.shape == (2,) and key.dtype == np.uint64 for key in draws)
    assert len({tuple(key.tolist()) for key in draws}) == 20
    assert np.bitwise_or.reduce(draws).tolist() == [WORD, WORD]
    np.testing.assert_array_equal(draw_key(np.random.default_rng(3)), draws[3])


@pytest.mark.parametrize("seed", [0, 7, 2**100, np.int32(7), np.uint64(2**63)])
def test_a_number_seeds_the_same_generator_each_time(seed):
    draws = as_generator(seed).random(3)
    np.testing.assert_array_equal(draws, as_generator(seed).random(3))
    np.testing.assert_array_equal(draws, np.random.default_rng(int(seed)).random(3))


def test_a_generator_is_used_as_it_is():
    rng = np.random.default_rng(0)
    assert as_generator(rng) is rng


def test_a_random_state_is_a_source_that_moves_on():
    first, again = np.random.RandomState(0), np.random.RandomState(0)
    first_draw, second_draw = as_generator(first).random(3), as_generator(first).random(3)
    np.testing.assert_array_equal(first_draw, as_generator(again).random(3))
    assert first_draw.tolist() != second_draw.tolist()


def test_no_seed_means_fresh_randomness():
    assert as_generator(None).random() != as_generator(None).random()


@pytest.mark.parametrize("seed", [-1, 1.5, "0", object(), np.float64(2)])
def test_a_bad_seed_is_refused_with_what_is_allowed(seed):
    with pytest.raises(InvalidSetting, match=r"random_state must be None, a whole number >= 0 or a NumPy generator"):
        as_generator(seed)
