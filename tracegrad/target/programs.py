"""Tuning constants of running programs: first calls, dispatch, plain Python, caches."""

from tracegrad.target.constants import chosen, measured
from tracegrad.utils.lazy_dataclass import record


@record(frozen=True)
class FirstCall:
    """Constants of the first call: what NumPy and what the compiler are estimated to take."""

    unit_time: int = measured(15_000_000, "ns", "first_calls", "time to compile a unit, besides its text")
    character_time: int = measured(10_000, "ns per character", "first_calls", "time to compile the text of a unit")
    shared_function_time: int = measured(
        10_000_000, "ns", "first_calls", "time to compile a function that programs share"
    )
    region_character_time: int = measured(
        16_000, "ns per character", "first_calls", "time to compile the text of a step with regions"
    )
    max_region_text: int = measured(
        10_000, "characters", "first_calls", "a longer text of a step with regions costs no more: most of it is numbers"
    )
    op_time: int = measured(3_000, "ns", "first_calls", "time to apply an op to a few elements")
    byte_time: float = measured(0.04, "ns per byte", "first_calls", "time to read or write memory")
    product_time: float = measured(0.005, "ns per byte", "first_calls", "time of a multiply-add with BLAS")
    slow_product_time: float = measured(0.25, "ns per byte", "first_calls", "time of a multiply-add without BLAS")
    first_touch_time: float = measured(0.25, "ns per byte", "first_calls", "time to touch fresh memory")
    reduced_row_time: float = measured(
        15.0, "ns per row", "first_calls", "time of a reduced row or column, besides its bytes"
    )
    gathered_time: float = measured(4.0, "ns per element", "first_calls", "time to gather an element")
    scattered_time: float = measured(12.0, "ns per element", "first_calls", "time to scatter an element")
    composite_time: float = measured(1.0, "ns per element", "first_calls", "time of a composite op")
    multi_loop_time: float = measured(10.0, "ns per element", "first_calls", "time of any other op with several loops")
    cost_unit_time: float = measured(
        0.12, "ns per cost unit", "first_calls", "time of a function of 8-byte elements; half for smaller ones"
    )
    function_times: tuple[tuple[str, float], ...] = measured(
        (
            ("sin", 8.0),
            ("cos", 8.0),
            ("erf", 9.0),
            ("power", 20.0),
            ("remainder", 10.0),
            ("floor_divide", 20.0),
            ("where", 1.0),
        ),
        "ns per element",
        "first_calls",
        "times of more expensive functions of 8-byte elements; half for smaller ones",
    )
    max_replay_ratio: float = measured(
        0.75,
        "parts of compiling",
        "first_calls",
        "NumPy answers the first call if this costs less; this bounds the loss if a second call follows",
    )
    restored_node_time: int = measured(
        30_000,
        "ns per node",
        "warm_start",
        "time by which restoring a graph costs more than restoring a compiled program",
    )
    min_retained_bytes: int = measured(
        1 << 24, "bytes", "first_calls", "bytes of live values from which on NumPy's replay retains freed memory"
    )
    min_in_place: int = measured(
        1 << 17, "elements", "first_calls", "minimum elements of a result that overwrites an operand in NumPy's replay"
    )
    block_elements: int = measured(1 << 14, "elements", "first_calls", "elements of a block of NumPy's replay")
    units_between_breaks: int = chosen(16, "units", "units that the compiler thread compiles between two breaks")
    break_time: float = chosen(1e-4, "s", "time of a break of the compiler thread")
    max_kernels_of_module: int = measured(16, "kernels", "compile", "maximum kernels that are compiled as one module")


@record(frozen=True)
class Dispatch:
    """Constants of the dispatcher, its paths and its fast paths."""

    max_specializations: int = chosen(256, "entries", "maximum specializations of a function")
    max_paths: int = chosen(64, "entries", "maximum paths of a specialization")
    max_instances: int = chosen(
        64, "entries", "maximum instances without weak references whose programs a traced method retains"
    )
    max_attempts: int = chosen(
        8, "attempts", "maximum attempts to find a path: rounding can make a compiled guard value differ from NumPy's"
    )
    max_inline_cache: int = measured(8, "entries", "call_overhead", "maximum entries of a polymorphic inline cache")
    hits_to_front: int = measured(
        64, "calls", "call_overhead", "hits of a polymorphic inline cache after which an entry becomes the first"
    )
    max_families: int = chosen(512, "entries", "maximum code objects whose closures share programs")
    max_guards: int = chosen(
        4096, "guards", "maximum guards of a fast path: with more, the code costs more than it saves"
    )
    max_compared_keys: int = measured(3, "keys", "guards", "maximum keys of a dict that are compared one by one")
    residual_rows: int = chosen(
        128, "iterations", "initial capacity for the residuals of a derivative; a call that exceeds it enlarges it"
    )
    max_donated_pairs: int = chosen(
        1 << 14, "pairs", "maximum pairs of a donated array and another one, which each call checks for overlap"
    )
    min_strided_bytes: int = measured(
        1 << 11,
        "bytes per node",
        "kernels",
        "minimum bytes of strided inputs for a program that reads them without copies",
    )
    max_fast_paths: int = chosen(
        32, "entries", "maximum fast paths of a path, one for each repeated set of random generators"
    )
    max_layouts: int = chosen(16, "entries", "maximum input layouts of a path; others are copied")
    min_strided_array: int = measured(1 << 11, "bytes", "kernels", "minimum bytes of an array that is not copied")


@record(frozen=True)
class PlainPython:
    """Constants that decide when a function runs as plain Python because that is faster."""

    max_retraces_for_one: int = chosen(8, "traces", "maximum retraces for one reason before a warning")
    max_retraces_for_all: int = chosen(24, "traces", "maximum retraces for all reasons before a warning")
    max_unmet: int = chosen(
        64, "calls", "consecutive traced calls after which arguments of their kinds are no longer traced"
    )
    max_kinds: int = chosen(256, "entries", "maximum kinds of arguments that are counted")
    traced_calls: int = chosen(64, "calls", "a trial begins after this many consecutive traced calls")
    traced_time: float = chosen(
        3.0, "s", "a trial begins earlier if more than max_retraces_for_one traced calls took this CPU time"
    )
    slow_calls: int = chosen(
        64, "calls", "a trial begins after this many slow-path calls that found a program, if they were brief"
    )
    brief_time: float = chosen(1e-3, "s", "mean time of slow-path calls of which the lookup is a large part")
    new_kind_fraction: float = chosen(
        0.25,
        "parts of time",
        "part of the time of a trace for a new kind of arguments that counts, because each kind is traced "
        "once in any case",
    )
    trial_calls: int = chosen(32, "calls", "calls of either kind in a trial")
    trial_time: float = chosen(0.25, "s", "time after which a trial has fewer calls")
    min_trial_calls: int = chosen(3, "calls", "minimum calls of either kind in a trial")
    far_factor: int = chosen(4, "times trial_time", "time after which a trial has even fewer calls")
    outlier_fraction: float = chosen(0.1, "parts of calls", "part of the longest calls that a trial ignores")
    max_plain_ratio: float = chosen(0.8, "parts of time", "maximum time of plain Python, relative to traced calls")
    min_rest: int = chosen(1024, "calls", "minimum calls that run as plain Python after a trial")
    rest_factor: int = chosen(4, "times the trial", "minimum time of the calls that run as plain Python after a trial")
    brief_rest: int = chosen(64, "calls", "calls that run as plain Python without a trial")
    plain_calls: int = chosen(
        8, "calls", "consecutive calls that ran as plain Python for another reason before brief_rest"
    )
    max_doublings: int = chosen(16, "doublings", "maximum doublings of the calls before the next trial, and of a rest")


@record(frozen=True)
class CacheLimits:
    """Limits of caches in memory and on disk."""

    polynomials: int = measured(1 << 12, "entries", "compile", "cached results per operation on polynomials")
    kernels: int = measured(512, "entries", "compile", "cached kernels")
    plan_bytes: int = chosen(
        1 << 20,
        "bytes",
        "maximum bytes of the descriptions of cached graphs; their images are larger by more than a factor of ten",
    )
    missing_units: int = chosen(
        100_000, "entries", "maximum keys of units that were missing when a program was interpreted"
    )
    disk_bytes: int = chosen(512 << 20, "bytes", "maximum bytes of the disk cache")
    disk_sweeps: int = chosen(64, "sweeps", "expected sweeps of the disk cache per disk_bytes written")
    stored_paths: int = chosen(16, "entries", "maximum stored paths of one specialization")
    stored_array_bytes: int = chosen(1 << 18, "bytes", "maximum bytes of an array that is stored with a trace")
    stored_items: int = chosen(4096, "entries", "maximum items of a container that is stored with a trace")


@record(frozen=True)
class Diagnostics:
    """Constants of progress lines and of measurements."""

    progress_delay: float = chosen(2.0, "s", "time until the progress line appears")
    progress_interval: float = chosen(0.1, "s", "time between updates of the progress line")
    bandwidth_elements: int = chosen(
        1 << 23, "elements", "elements of an array that memory bandwidth is measured with: three exceed the caches"
    )
    peak_rows: int = chosen(1024, "rows", "rows of the matrices that the peak is measured with")
    min_peak_runs: int = chosen(4, "runs", "minimum runs of a measured peak")
    min_peak_time: float = chosen(0.15, "s", "minimum time of a measured peak")
    min_timed_runs: int = chosen(5, "runs", "minimum runs of a timed program")
    max_timed_runs: int = chosen(10_000, "runs", "maximum runs of a timed program")
