"""Python's garbage collector while traces are made: the thresholds of the user's process come back."""

import gc
import itertools
import os
import threading
import warnings

import numpy as np
import pytest
from hatch import unseen

import tracegrad as tg
from tracegrad.trace.builder.gc_pause import _share, impatient, patient, thresholds

X = np.linspace(-1.0, 2.0, 6).reshape(2, 3)


def test_the_garbage_collector_is_as_it_was_behind_a_trace_and_to_its_code() -> None:
    before = gc.get_threshold()

    def f(x, ends):
        if ends:
            raise KeyError(x.shape)
        return x * gc.get_threshold()[1]

    def sets(x):
        gc.set_threshold(600, 7, 8)
        return x

    set_in_a_trace = unseen(gc.set_threshold)

    def sets_unseen(x):
        set_in_a_trace(600, 8, 9)
        return x

    try:
        for args in (before, (600, 12, 13)):
            gc.set_threshold(*args)
            np.testing.assert_array_equal(tg.trace(f)(X, False), X * args[1])
            with pytest.raises(KeyError):
                tg.trace(f)(X, True)
            assert gc.get_threshold() == args
        tg.trace(sets_unseen)(X)
        assert gc.get_threshold() == (600, 8, 9)
        plain = tg.trace(sets)  # it is to happen at each call, so each runs as plain Python
        with pytest.warns(tg.PerformanceWarning, match=r"what gc\.set_threshold reads or does"):
            plain(X)
        assert gc.get_threshold() == (600, 7, 8)
        gc.set_threshold(*before)
        plain(X)
        assert gc.get_threshold() == (600, 7, 8)
    finally:
        gc.set_threshold(*before)


def test_the_garbage_collector_is_as_it_was_behind_traces_of_threads_in_any_order() -> None:
    before = gc.get_threshold()
    for order in itertools.permutations(("trace", "compile", "other")):
        begun = {"trace": patient(), "compile": impatient(), "other": patient()}
        for name in order:
            begun[name].__enter__()
        assert gc.get_threshold()[2] > before[2]
        for name in begun:
            begun[name].__exit__(None, None, None)
        assert gc.get_threshold() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_garbage_collector_of_a_fork_is_the_users_though_another_thread_traces() -> None:
    before, begun, done = gc.get_threshold(), threading.Event(), threading.Event()

    def traces() -> None:
        with patient():
            begun.set()
            done.wait()

    thread = threading.Thread(target=traces)
    thread.start()
    begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
        child = os.fork()
    if not child:
        os._exit(gc.get_threshold() != before)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert gc.get_threshold() == before


def test_the_garbage_collector_is_the_users_again_where_an_interrupt_came_as_a_trace_ended() -> None:
    before = gc.get_threshold()
    lost = patient()
    lost.__enter__()
    _share.patient.clear()  # as if it had died without its end
    assert gc.get_threshold() != before == thresholds()
    with patient():
        assert thresholds() == before
    assert gc.get_threshold() == before
    lost.__exit__(None, None, None)
    assert gc.get_threshold() == before
