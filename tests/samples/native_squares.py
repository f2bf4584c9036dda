"""Compile and run a loop that squares numbers."""

from __future__ import annotations

import ctypes

import numpy as np

from tracegrad.runtime.compile import jit

SQUARES = """
define internal double @square(double %x) alwaysinline {
  %y = fmul double %x, %x
  ret double %y
}
define i32 @tg_run(i64* %block, i8** %p) {
entry:
  %n = load i64, i64* %block
  %a = load i8*, i8** %p
  %p1 = getelementptr i8*, i8** %p, i64 1
  %b = load i8*, i8** %p1
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %q = getelementptr double, i8* %a, i64 %i
  %x = load double, double* %q
  %y = call double @square(double %x)
  %r = getelementptr double, i8* %b, i64 %i
  store double %y, double* %r
  %j = add nuw nsw i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %done
done:
  ret i32 0
}
"""


RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def run_squares(code: jit.NativeCode, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    block = np.array([x.size], np.int64)
    pointers = np.array([x.ctypes.data, out.ctypes.data], np.uintp)
    assert RUN(code.address("tg_run"))(block.ctypes.data, pointers.ctypes.data) == 0
    return out
