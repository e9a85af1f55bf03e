"""numpy: arrays and scalars of every dtype that holds no object.

Owns: how a dtype is written, and the bytes of the items. Invariant: dtype,
shape, order in memory (C or Fortran) and every item come back; equal arrays
have equal bytes, so what lies between the items' own bytes is written as zero.
An array that comes back is writable, C- or Fortran-contiguous and in memory of
its own. The items of a large one are copied once each way: they lie behind the
encoded value, since msgpack makes a bytes object of what lies in it.

numpy is imported when a state that is read holds some of it; writing takes it
from the process that made the value.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from cloudckpt.codec import wire
from cloudckpt.codec.containers import Container, Encoding
from cloudckpt.codec.wire import Unsupported
from cloudckpt.errors import UnsupportedFormatError

# What `dtype.str` gives for everything but structs and objects.
_SIMPLE: Final = re.compile(r"[<>|](?:[biufcSUV][0-9]{1,9}|[mM]8(?:\[[0-9]{0,9}[a-zA-Zμ]{1,2}\])?)")


def find(cls: type) -> Container | None:
    """Return the row of exactly this numpy class."""
    np: Any = sys.modules.get("numpy")
    if np is None or not cls.__module__.startswith("numpy"):
        return None
    if cls is np.ndarray:
        return _ARRAY
    return _SCALAR if issubclass(cls, np.generic) and cls not in (np.object_, np.record) else None


def _dump_array(value: Any, encoding: Encoding) -> Iterable[Any]:
    dtype = _dtype_to_plain(value.dtype)
    fortran = _is_fortran(value)
    items = encoding.aside(_items(value.T if fortran else value))
    return dtype, list(value.shape), "F" if fortran else "C", items


def frozen(value: Any) -> Any:
    """Return an array that is written as this one, and that nobody can change: itself, over bytes.

    Raises:
        Unsupported: It can't be carried.
    """
    np: Any = sys.modules["numpy"]
    _dtype_to_plain(value.dtype)
    base = value.base
    while type(base) is np.ndarray:
        base = base.base
    if type(base) is bytes and not value.flags.writeable:
        return value
    return value.copy(order="F" if _is_fortran(value) else "C")


def _is_fortran(value: Any) -> bool:
    return bool(value.flags.f_contiguous and not value.flags.c_contiguous)


def _dump_scalar(value: Any, _: Encoding) -> Iterable[Any]:
    np: Any = sys.modules["numpy"]
    if isinstance(value, np.str_ | np.bytes_):  # an array would drop NULs at their end
        return ("U", str.__str__(value)) if isinstance(value, np.str_) else ("S", bytes.__add__(value, b""))
    return _dtype_to_plain(value.dtype), _items(np.asarray(value))


def _items(array: Any) -> bytes | memoryview:
    """Return the bytes of the items in C order, without a copy where it can be."""
    np: Any = sys.modules["numpy"]
    if array.nbytes == 0:
        return b""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    own = _own_bytes(array.dtype)
    if not own.all():
        flat = flat.copy()
        flat.reshape(-1, array.itemsize)[:, ~own] = 0
    view: memoryview = flat.data
    return view


def _own_bytes(dtype: Any) -> Any:
    """Return which bytes of an item belong to it, and not to the space between."""
    np: Any = sys.modules["numpy"]
    own = np.zeros(dtype.itemsize, bool)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        own[:] = np.tile(_own_bytes(base), math.prod(shape))
    elif dtype.names is not None:
        for name in dtype.names:
            field, offset = dtype.fields[name][:2]
            own[offset : offset + field.itemsize] |= _own_bytes(field)
    elif dtype.kind in "fc" and np.finfo(dtype).nmant == 63:  # ten bytes, in sixteen or twelve
        numbers = own.reshape(1 if dtype.kind == "f" else 2, -1)
        numbers[:, slice(-10, None) if dtype.byteorder == ">" else slice(10)] = True
    else:
        own[:] = True
    return own


def _dtype_to_plain(dtype: Any) -> Any:
    if dtype.hasobject or dtype.kind not in "biufcSUVmM":
        raise Unsupported(f"a numpy array of dtype {dtype} is not serializable")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_dtype_to_plain(base), list(shape)]
    if dtype.type is sys.modules["numpy"].record:
        raise Unsupported("a numpy record array is not serializable; use a structured one")
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    if any(len(field) > 2 for field in fields):
        raise Unsupported("a numpy dtype with titles is not serializable")
    return {
        "names": list(dtype.names),
        "formats": [_dtype_to_plain(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
    }


def _plain_to_dtype(plain: Any) -> Any:
    np = _numpy()
    if type(plain) is str:
        if not _SIMPLE.fullmatch(plain):
            raise ValueError("not a dtype")
        return np.dtype(plain)
    if type(plain) is list:
        base, shape = plain
        return np.dtype((_plain_to_dtype(base), tuple(shape)))
    layout = {name: plain[name] for name in ("names", "offsets", "itemsize")}
    layout["formats"] = [_plain_to_dtype(field) for field in plain["formats"]]
    return np.dtype(layout, align=plain["aligned"])


def _load_array(items: list[Any]) -> Any:
    dtype, shape, order, data = items
    if order not in ("C", "F"):
        raise ValueError("not an order")
    return _make(dtype, tuple(shape), order, data)


def _load_scalar(items: list[Any]) -> Any:
    dtype, data = items
    if dtype == "U" and type(data) is str:
        return _numpy().str_(data)
    if dtype == "S" and type(data) is bytes:
        return _numpy().bytes_(data)
    return _make(dtype, (), "C", data)[()]


def _make(plain: Any, shape: tuple[int, ...], order: str, data: bytes | memoryview) -> Any:
    np = _numpy()
    dtype = _plain_to_dtype(plain)
    lengths_fit = all(type(length) is int and length >= 0 for length in shape)
    well_formed = lengths_fit and type(data) in (bytes, memoryview)
    if not well_formed or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("not the bytes of an array of this shape")
    return np.ndarray(shape, dtype, bytearray(data), order=order)


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError as error:
        raise UnsupportedFormatError(
            "the state holds a numpy value; install numpy to load it", kind="missing-library"
        ) from error
    return np


_ARRAY: Final = Container(wire.ARRAY, _dump_array, _load_array)
_SCALAR: Final = Container(wire.NUMPY_SCALAR, _dump_scalar, _load_scalar)

LOADERS: Final = {_ARRAY.kind: _load_array, _SCALAR.kind: _load_scalar}
