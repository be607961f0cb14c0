"""C's types under OpenSHMEM's names, on LP64 machines, and the lists of types of each family of names."""

from __future__ import annotations

# OpenSHMEM's name: (C's, NumPy's); types.py has torch's, too
SPELLINGS = {
    "float": ("float", "float32"),
    "double": ("double", "float64"),
    "char": ("char", "int8"),
    "schar": ("signed char", "int8"),
    "short": ("short", "int16"),
    "int": ("int", "int32"),
    "long": ("long", "int64"),
    "longlong": ("long long", "int64"),
    "uchar": ("unsigned char", "uint8"),
    "ushort": ("unsigned short", "uint16"),
    "uint": ("unsigned int", "uint32"),
    "ulong": ("unsigned long", "uint64"),
    "ulonglong": ("unsigned long long", "uint64"),
    **{f"{u}int{n}": (f"{u}int{n}_t", f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)},
    "size": ("size_t", "uint64"),
    "ptrdiff": ("ptrdiff_t", "int64"),
    "complexd": ("double _Complex", "complex128"),
    "complexf": ("float _Complex", "complex64"),
    # names that count bits, or bytes, instead of naming a type
    "8": ("void", "uint8"),
    "16": ("void", "int16"),
    "32": ("void", "int32"),
    "64": ("void", "int64"),
    "128": ("void", "complex128"),
    "mem": ("void", "uint8"),
    "longdouble": ("long double", "longdouble"),
}

_FIXED = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_UNSIGNED = ("uint", "ulong", "ulonglong")
RMA = tuple(name for name, (c, _) in SPELLINGS.items() if not name.startswith("complex") and c != "void")
AMO = ("int", "long", "longlong", *_UNSIGNED, "int32", "int64", "uint32", "uint64", "size", "ptrdiff")
EXTENDED_AMO = ("float", "double", *AMO)
BITWISE_AMO = (*_UNSIGNED, "int32", "int64", "uint32", "uint64")
ORDERED = RMA  # min and max
NUMERIC = (*RMA, "complexd", "complexf")  # sum, product and scans
BITWISE = ("uchar", "ushort", *_UNSIGNED, *_FIXED, "size")
SETS_BITWISE = ("short", "int", "long", "longlong")  # the reductions over active sets
SETS_ORDERED = (*SETS_BITWISE, "float", "double", "longdouble")
SETS_NUMERIC = (*SETS_ORDERED, "complexd", "complexf")
SIZES = ("8", "16", "32", "64", "128")
