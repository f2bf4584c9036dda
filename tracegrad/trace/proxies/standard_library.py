"""Classify functions of Python's standard library as pure, re-read at each call, or unknown.

A pure function depends only on its arguments; it runs untraced, and its result is a constant of the trace. A function
that depends on other state, such as the working directory, is called again at each call and guarded. A function in
neither table may read or do anything, so a function that calls it runs as plain Python.
"""

from __future__ import annotations

import functools
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tracegrad.trace.builder.builder import current_trace, repeats
from tracegrad.trace.proxies.ambient_state import reader
from tracegrad.trace.proxies.builtin_proxies import unshadowed
from tracegrad.trace.random.rejected_reads import ClassProxy
from tracegrad.trace.sources.code_origin import is_user_module

# Modules whose functions depend only on their arguments, or print; and modules that other proxies handle
# (`tracegrad.trace.proxies.module_proxies`): clocks, random numbers, and modules with settings.
_MODULES = """
    abc annotationlib array ast base64 binascii bisect blake2 builtins bz2 calendar cmath code codecs codeop collections
    colorsys contextlib copy dataclasses datetime decimal difflib dis enum errno fnmatch fractions functools genericpath
    graphlib hashlib heapq hmac html importlib.metadata inspect io ipaddress itertools json keyword lzma marshal math
    md5 ntpath numbers opcode operator pathlib pickle pickletools platform plistlib pprint queue quopri random re
    reprlib secrets sha1 sha2 sha256 sha3 sha512 shlex sre sre_compile sre_constants sre_parse stat statistics string
    stringprep struct symtable sysconfig textwrap token tokenize tomllib traceback types typing unicodedata urllib.parse
    uu uuid warnings weakref xml.sax.saxutils zlib zoneinfo
"""
# Pure functions of modules that are not listed.
_FUNCTIONS = {
    "asyncio.coroutines": "iscoroutine iscoroutinefunction",
    "copyreg": "constructor pickle_complex pickle_union",
    "csv": "reader writer",
    "ctypes": """
        ARRAY CFUNCTYPE POINTER PYFUNCTYPE SetPointerType addressof alignment byref create_string_buffer
        create_unicode_buffer pointer sizeof
    """,
    "gc": "collect",
    "getopt": "getopt gnu_getopt",
    "glob": "escape has_magic",
    "gzip": "compress decompress",
    "locale": "normalize",
    "logging": "fatal warn",
    "os": """
        WCOREDUMP WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG WTERMSIG fsdecode fsencode fspath
        major makedev minor sched_get_priority_max sched_get_priority_min strerror uname waitstatus_to_exitcode
    """,
    "os.path": """
        basename commonpath commonprefix dirname isabs join normcase normpath samestat split splitdrive splitext
    """,
    "shutil": "ignore_patterns",
    "signal": "strsignal valid_signals",
    "socket": "CMSG_LEN CMSG_SPACE htonl htons inet_aton inet_ntoa inet_ntop inet_pton ntohl ntohs",
    "sys": """
        _getframe audit exc_info exception exit getdefaultencoding getfilesystemencodeerrors getfilesystemencoding
        intern is_finalizing
    """,
    "threading": "RLock allocate allocate_lock",
    "time": "asctime clock_getres get_clock_info strptime",
}
# Functions that read the state of the process or the system. They have no effect, are fast, and do not observe tracing.
_REREAD_FUNCTIONS = {
    "abc": "get_cache_token",
    "faulthandler": "is_enabled",
    "gc": "get_debug",
    "getpass": "getuser",
    "gettext": "dgettext dngettext gettext ngettext",
    "locale": """
        atof atoi currency delocalize format_string getencoding getlocale getpreferredencoding localeconv localize
        nl_langinfo str strcoll strxfrm
    """,
    "logging": "getLevelName getLevelNamesMapping getLoggerClass getLogRecordFactory",
    "mimetypes": "guess_all_extensions guess_extension guess_type",
    "os": """
        confstr ctermid get_exec_path get_terminal_size getcwdb getegid getenvb geteuid getgid getgroups getlogin
        getpgid getpgrp getppid getpriority getsid getuid isatty pathconf sched_getaffinity sysconf
    """,
    "os.path": "abspath expanduser expandvars getatime getctime islink ismount lexists realpath relpath samefile",
    "resource": "getpagesize getrlimit",
    "shutil": "get_terminal_size which",
    "signal": "getsignal",
    "socket": "getdefaulttimeout gethostname",
    "sys": "get_asyncgen_hooks get_coroutine_origin_tracking_depth get_int_max_str_digits",
    "tempfile": "gettempdir gettempdirb gettempprefix gettempprefixb",
    "threading": "get_native_id",
    "time": "mktime",
    "tracemalloc": "get_traceback_limit is_tracing",
}
# Functions whose result depends on the identity of their arguments, not on the values.
_OF_OBJECTS = {
    "gc": "get_referents get_referrers is_tracked",
    "sys": "getrefcount getsizeof",
    "weakref": "getweakrefcount getweakrefs",
}
# Exceptions in the listed modules: functions that change shared state, or read state that no call can read again.
_EXCEPTED = {
    "bz2": "open",
    "code": "interact",
    "calendar": "setfirstweekday",
    "codecs": "EncodedFile open register register_error unregister",
    "inspect": "getmembers getmembers_static",
    "io": "open_code",
    "lzma": "open",
    "tokenize": "open",
    "weakref": "getweakrefcount getweakrefs",
    "zoneinfo": "available_timezones reset_tzpath",
}
# Classes whose constructors have side effects.
_CLASSES = {
    "bz2": "BZ2File",
    "concurrent.futures.process": "ProcessPoolExecutor",
    "concurrent.futures.thread": "ThreadPoolExecutor",
    "configparser": "ConfigParser RawConfigParser",
    "gzip": "GzipFile",
    "http.client": "HTTPConnection HTTPSConnection",
    "io": "FileIO",
    "lzma": "LZMAFile",
    "mmap": "mmap",
    "multiprocessing.context": "Process",
    "multiprocessing.pool": "Pool ThreadPool",
    "shelve": "DbfilenameShelf",
    "socket": "socket",
    "sqlite3": "Connection",
    "tarfile": "TarFile",
    "tempfile": "SpooledTemporaryFile TemporaryDirectory",
    "threading": "Thread Timer",
    "xml.etree.ElementTree": "ElementTree",
    "zipfile": "ZipFile",
}
# The public names of modules, without the underscore of C modules.
_PUBLIC = {
    "posix": "os",
    "nt": "os",
    "posixpath": "os.path",
    "ntpath": "os.path",
    "genericpath": "os.path",
    "thread": "threading",
    "py_warnings": "warnings",  # since Python 3.14
}
_KINDS = (types.FunctionType, types.BuiltinFunctionType)
_ROOTS = sys.stdlib_module_names | set(sys.builtin_module_names)


def _names(table: dict[str, str]) -> frozenset[str]:
    return frozenset([f"{module}.{name}" for module, names in table.items() for name in names.split()])


_LISTED = frozenset(_MODULES.split())
_OF_ARGUMENTS, _REREAD, _NOT = _names(_FUNCTIONS), _names(_REREAD_FUNCTIONS), _names(_EXCEPTED)
_DOING, _TAKES_OBJECTS = _names(_CLASSES), _names(_OF_OBJECTS)


def _public_name(value: object) -> tuple[str, str]:
    """The public module and name of a function or class defined in a standard library module."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if type(module) is not str or module.partition(".")[0] not in _ROOTS:
        return "", ""
    held = sys.modules.get(module, types)
    if type(name) is not str or vars(held).get(name) is not value or is_user_module(held):
        return "", ""
    return _PUBLIC.get(module.removeprefix("_"), module.removeprefix("_")), name


def _is_listed(module: str) -> bool:
    while module and module not in _LISTED:
        module = module.rpartition(".")[0]
    return bool(module)


def refused_effect(real: Callable[..., object], name: str) -> Callable[..., object]:
    """The stand-in of a function that each call must run."""

    @functools.wraps(real, updated=())
    def call(*args: object, **kwargs: object) -> Any:
        if not repeats():
            return real(*map(unshadowed, args) if name in _TAKES_OBJECTS else args, **kwargs)
        trace: Any = current_trace()
        raise trace.abort(f"what {name} reads or does is to happen at each call; do it outside to have it compiled")

    return call


@functools.lru_cache(maxsize=4096)
def _replacement(real: Callable[..., object], module: str, name: str) -> object:
    full = f"{module}.{name}"
    if isinstance(real, type):
        return ClassProxy(name, (), {"real": real, "other": {"__call__": refused_effect(real, full)}})
    if full in _REREAD:
        return reader(real)
    known = full in _OF_ARGUMENTS or (_is_listed(module) and full not in _NOT)
    return None if known else refused_effect(real, full)


def of_library(value: object) -> object:
    """The stand-in of a standard library function, or of a class with side effects on call; None for a pure function,
    and for other modules."""
    if not isinstance(value, (*_KINDS, type)):
        return None
    module, name = _public_name(value)
    if not module or (isinstance(value, type) and f"{module}.{name}" not in _DOING):
        return None
    return _replacement(value, module, name)


def type_hints(
    obj: object,
    globalns: dict[str, object] | None = None,
    localns: Mapping[str, object] | None = None,
    include_extras: bool = False,
    **options: object,
) -> dict[str, object]:
    """`typing.get_type_hints`, with a guard for each global name in an annotation.

    It takes the globals for missing local names. Since Python 3.14 it copies the local names, so all would be guarded.
    """
    if localns is None and not isinstance(obj, type):
        localns = {}
    hints: Callable[..., dict[str, object]] = typing.get_type_hints
    return hints(obj, globalns, localns, include_extras, **options)
