import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from expunge.saving.archive import BadArray, array_parts, parse_array, read_npy_header

dtypes = st.sampled_from(["<i8", ">i8", "<f8", "|u1", "|b1", "<U3", "<u8"])


@given(
    dtypes.flatmap(lambda kind: arrays(kind, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))), st.data()
)
def test_parts_are_what_numpy_reads_and_come_back_in_any_layout(array, data):
    array = data.draw(st.sampled_from([array, array.T, np.asfortranarray(array)]))
    whole = b"".join(array_parts(array))
    np.testing.assert_array_equal(np.load(io.BytesIO(whole), allow_pickle=False), array)
    portable = array.dtype.newbyteorder("<").str
    np.testing.assert_array_equal(parse_array(whole, portable, *array.shape), array)
    np.testing.assert_array_equal(parse_array(whole, portable, *[None] * array.ndim), array)
    for damaged in (whole[:-1] if array.nbytes else whole[:-9], whole + b"\0", b"", whole[:20]):
        with pytest.raises(BadArray):
            parse_array(damaged, portable, *array.shape)


@pytest.mark.parametrize(
    ("dtype", "shape"), [("<i8", (2, 3)), ("<f8", (3, 2)), ("<f8", (6,)), ("<f8", (2, None, None)), ("<U", (2, 3))]
)
def test_another_type_or_shape_is_refused_before_anything_is_read(dtype, shape):
    stream = io.BytesIO(b"".join(array_parts(np.zeros((2, 3)))))
    with pytest.raises(BadArray, match="has the wrong shape or type"):
        read_npy_header(stream, dtype, *shape)


def test_text_of_any_width_is_one_type():
    for text in ("a", "long text"):
        whole = b"".join(array_parts(np.array([text])))
        assert parse_array(whole, "<U", 1).tolist() == [text]


@pytest.mark.parametrize("save", [lambda f: np.save(f, np.array([{}], dtype=object)), lambda f: f.write(b"no array")])
def test_nothing_is_unpickled(save):
    stream = io.BytesIO()
    save(stream)
    with pytest.raises(BadArray):
        parse_array(stream.getvalue(), "|O", 2)


def test_a_header_is_read_without_pythons_parser(monkeypatch):
    """In CPython 3.11 it fails at random while another thread parses, and a sound file would be called damaged."""
    whole = b"".join(array_parts(np.arange(6.0).reshape(2, 3)))
    monkeypatch.setattr("ast.literal_eval", None)
    assert parse_array(whole, "<f8", 2, 3).sum() == 15


@pytest.mark.parametrize("shape", [b"()", b"(2)", b"(2, )", b"(2, 3,)", b"(02, 3)", b"(-2, 3)", b"(2,3)", b"(1e0,)"])
def test_what_numpy_would_not_write_is_not_read(shape):
    whole = b"".join(array_parts(np.zeros((2, 3))))
    with pytest.raises(BadArray):
        parse_array(whole.replace(b"(2, 3)", shape.ljust(6)), "<f8", None, None)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 45), "<i8"), np.zeros(7), np.array(["ab"]), np.zeros((2, 1), bool)], ids=str
)
def test_no_bit_of_a_header_can_be_flipped(array):
    """Not even an equivalent one: `=i8`, or a form feed for the last comma."""
    whole = b"".join(array_parts(array))
    kind = "<U" if array.dtype.kind == "U" else array.dtype.str
    for position in range(len(whole) - array.nbytes):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            with pytest.raises(BadArray):
                parse_array(bytes(flipped), kind, *array.shape)
