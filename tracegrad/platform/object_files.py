"""Object files: the symbols that machine code defines and needs, in the formats of Linux, macOS and Windows.

llvmlite has LLVM make ELF files on Linux and on Windows, and Mach-O files on macOS. LLVM's linker ends the process if
a file is none or a symbol is missing, so both are checked before.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_ELF, _MACH_O = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe"  # 64 bits, the low byte first
_SYMTAB, _STT_SECTION, _STT_FILE = 2, 3, 4
_LC_SYMTAB, _N_STAB, _N_TYPE, _N_EXT = 2, 0xE0, 0x0E, 0x01


class Symbols(NamedTuple):
    """The names of functions and data that an object file defines and needs."""

    defined: frozenset[str]
    needed: frozenset[str]


def symbols(code: bytes) -> Symbols | None:
    """The symbols of an object file; None if it has neither format."""
    if code.startswith(_ELF):
        return _elf_symbols(code)
    return _mach_o_symbols(code) if code.startswith(_MACH_O) else None


def _elf_symbols(code: bytes) -> Symbols:
    """Layout: System V ABI, "Object Files", sections "ELF Header", "Section Header" and "Symbol Table"."""
    (table,) = struct.unpack_from("<Q", code, 0x28)
    entry_size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", code, table + i * entry_size) for i in range(count)]
    defined: set[str] = set()
    undefined: set[str] = set()
    for _, kind, _, _, offset, size, link, _ in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for name, info, _, index in struct.iter_unpack("<IBBH16x", code[offset : offset + size]):
            if name and info & 15 not in (_STT_SECTION, _STT_FILE):
                (defined if index else undefined).add(_text(code, names + name))
    return Symbols(frozenset(defined), frozenset(undefined))


def _mach_o_symbols(code: bytes) -> Symbols:
    """Layout: Apple's <mach-o/loader.h> and <mach-o/nlist.h>. C's names have an underscore before them."""
    (commands,) = struct.unpack_from("<I", code, 16)
    at = 32
    defined: set[str] = set()
    undefined: set[str] = set()
    for _ in range(commands):
        command, size = struct.unpack_from("<II", code, at)
        if command == _LC_SYMTAB:
            table, count, names, _ = struct.unpack_from("<IIII", code, at + 8)
            for name, kind in struct.iter_unpack("<IB11x", code[table : table + 16 * count]):
                if kind & _N_EXT and not kind & _N_STAB:
                    text = _text(code, names + name).removeprefix("_")
                    (defined if kind & _N_TYPE else undefined).add(text)
        at += size
    return Symbols(frozenset(defined), frozenset(undefined))


def _text(code: bytes, at: int) -> str:
    return code[at : code.index(b"\0", at)].decode()
