"""For each pass over plans a small graph whose plan it changes."""

from __future__ import annotations

PLAN_PROGRAMS = {
    "remove_dead_stores": """graph(%0: f64[2000], %1: f64[2000], %2: f64[2000], %3: f64[2000]) {
  %4 = sqrt(%2) : f64[2000]
  %5 = multiply(%3, %4) : f64[2000]
  %6 = divide(%0, %1) : f64[2000]
  %7 = log(%6) : f64[2000]
  %8 = multiply(%3, 0.5) : f64[2000]
  %9 = multiply(%8, %3) : f64[2000]
  %10 = multiply(%9, %2) : f64[2000]
  %11 = add(%7, %10) : f64[2000]
  %12 = divide(%11, %5) : f64[2000]
  %13 = tanh(%12) : f64[2000]
  %14 = multiply(%0, %13) : f64[2000]
  %15 = subtract(%12, %5) : f64[2000]
  %16 = tanh(%15) : f64[2000]
  %17 = multiply(%1, %16) : f64[2000]
  %18 = negative(%2) : f64[2000]
  %19 = exp(%18) : f64[2000]
  %20 = multiply(%17, %19) : f64[2000]
  %21 = subtract(%14, %20) : f64[2000]
  %22 = reduce_sum(%21) {axes=(0,)} : f64[]
  %23 = negative(%19) : f64[2000]
  %24 = multiply(%23, %16) : f64[2000]
  %25 = multiply(%23, %1) : f64[2000]
  %26 = sech2(%15) : f64[2000]
  %27 = multiply(%25, %26) : f64[2000]
  %28 = negative(%27) : f64[2000]
  %29 = sech2(%12) : f64[2000]
  %30 = multiply(%0, %29) : f64[2000]
  %31 = add(%27, %30) : f64[2000]
  %32 = divide(%31, %5) : f64[2000]
  %33 = multiply(%32, %12) : f64[2000]
  %34 = subtract(%28, %33) : f64[2000]
  %35 = multiply(%32, %2) : f64[2000]
  %36 = multiply(%32, %9) : f64[2000]
  %37 = add(%20, %36) : f64[2000]
  %38 = multiply(%35, %3) : f64[2000]
  %39 = multiply(%35, %8) : f64[2000]
  %40 = multiply(%38, 0.5) : f64[2000]
  %41 = add(%39, %40) : f64[2000]
  %42 = divide(%32, %6) : f64[2000]
  %43 = divide(%42, %1) : f64[2000]
  %44 = add(%13, %43) : f64[2000]
  %45 = multiply(%43, %6) : f64[2000]
  %46 = subtract(%24, %45) : f64[2000]
  %47 = multiply(%34, %4) : f64[2000]
  %48 = add(%41, %47) : f64[2000]
  %49 = multiply(%34, %3) : f64[2000]
  %50 = multiply(%49, 0.5) : f64[2000]
  %51 = divide(%50, %4) : f64[2000]
  %52 = add(%37, %51) : f64[2000]
  return %22, %44, %46, %52, %48
}""",
    "fuse_arg_reductions": """graph(%0: f64[20,300]) {
  %1 = argmax(%0) {axis=1} : i64[20]
  return %1
}""",
    "exit_early": """graph(%0: bool[20,300]) {
  %1 = reduce_max(%0) {axes=(1,)} : bool[20]
  return %1
}""",
    "write_in_place": """graph(%0: f32[7], %1: i64[], %2: f32[3]) {
  %3 = exp(%0) : f32[7]
  %4 = dynamic_update_slice(%3, %2, %1) {step=(2,)} : f32[7]
  return %4
}""",
    "update_in_place": """graph(%0: f64[40]) {
  %1, = scan(%0, %0) {carries=1, length=4, reverse=False, xs=0} : f64[40],
    body(%0: f64[40], %1: f64[40]) {
      %2 = multiply(%0, %1) : f64[40]
      return %2
    }
  return %0, %1
}""",
    "donate": """graph(%0: f64[10]) {
  %1 = multiply(%0, 0.5) : f64[10]
  return %1
}""",
    "accumulate_products": """graph(a: f64[20,20], b: f64[20,20], c: f64[20,20], d: f64[20,20]) {
  %4 = matmul(a, b) : f64[20,20]
  %5 = matmul(c, d) : f64[20,20]
  %6 = add(%4, %5) : f64[20,20]
  %7 = tanh(%6) : f64[20,20]
  return %7
}""",
    "accumulate_scatters": """graph(%0: f64[64,20], %1: i64[3]) {
  %2 = full() {dtype='float64', shape=(3, 20), value=1.0} : f64[3,20]
  %3 = scatter_add(%2, %1) {axes=(0,), shape=(64, 20)} : f64[64,20]
  %4 = add(%3, %0) : f64[64,20]
  return %4
}""",
    "inline_one_hot_scatters": """graph(%0: f64[60,70], %1: f64[60], %2: i64[60]) {
  %3 = arange() {dtype='int64', length=60, start=0, step=1} : i64[60]
  %4 = reshape(%1) {shape=(60, 1)} : f64[60,1]
  %5 = broadcast_to(%4) {shape=(60, 70)} : f64[60,70]
  %6 = scatter_add(%1, %3, %2) {axes=(0, 1), shape=(60, 70)} : f64[60,70]
  %7 = add(%5, %6) : f64[60,70]
  %8 = tanh(%7) : f64[60,70]
  %9 = multiply(%8, 2.0) : f64[60,70]
  %10 = add(%9, %7) : f64[60,70]
  %11 = reduce_sum(%7) {axes=(1,)} : f64[60]
  %12 = reshape(%11) {shape=(60, 1)} : f64[60,1]
  %13 = broadcast_to(%12) {shape=(60, 70)} : f64[60,70]
  %14 = subtract(%10, %13) : f64[60,70]
  return %14
}""",
    "split_kernels": """graph(%0: f64[13,50], %1: f64[13,50]) {
  %2 = slice(%1) {start=(12, 0), step=(1, 1), stop=(13, 50)} : f64[1,50]
  %3 = pad(%2) {high=(0, 0), interior=(0, 0), low=(12, 0), value=0} : f64[13,50]
  return %3
}""",
    "split_region_kernels": """graph(%0: f64[40,40]) {
  %1, = scan(%0) {carries=1, length=30, reverse=False, xs=0} : f64[40,40],
    body(%0: f64[40,40]) {
      %1 = slice(%0) {start=(1, 0), step=(1, 1), stop=(40, 40)} : f64[39,40]
      %2 = flip(%1) {axes=(0,)} : f64[39,40]
      %3 = sin(%2) : f64[39,40]
      %4 = full() {dtype='bool', shape=(39, 40), value=True} : bool[39,40]
      %5 = pad(%4) {high=(0, 0), interior=(0, 0), low=(1, 0), value=False} : bool[40,40]
      %6 = pad(%3) {high=(0, 0), interior=(0, 0), low=(1, 0), value=0.0} : f64[40,40]
      %7 = where(%5, %6, %0) : f64[40,40]
      return %7
    }
  return %1
}""",
    "move_to_stack": """graph(%0: f64[4]) {
  %1, _ = while_loop(%0, %0) {capacity=0, carries=1} : f64[4], i64[]
    body(%0: f64[4], %1: f64[4]) {
      %2 = multiply(%0, 1.5) : f64[4]
      %3 = add(%2, %1) : f64[4]
      return %3
    }
    cond(%0: f64[4], %1: f64[4]) {
      %2 = reduce_sum(%0) {axes=(0,)} : f64[]
      %3 = less(%2, 40.0) : bool[]
      return %3
    }
  return %1
}""",
    "block_iterations": """graph(%0: f64[30]) {
  %1, = scan(%0) {carries=1, length=5, reverse=False, xs=0} : f64[30],
    body(%0: f64[30]) {
      %1 = sin(%0) : f64[30]
      return %1
    }
  return %1
}""",
    "reuse_dying_buffers": """graph(%0: f64[30,30]) {
  %1 = cholesky(%0) {lower=True} : f64[30,30]
  %2 = add(%1, 1.0) : f64[30,30]
  return %2
}""",
    "fuse_strips": """graph(%0: f64[1000,300], %1: f64[1000,300]) {
  %2 = concatenate(%0, %1) {axis=1} : f64[1000,600]
  return %2
}""",
    "allocate": """graph(%0: f64[30,30]) {
  %1 = cholesky(%0) {lower=True} : f64[30,30]
  %2 = reduce_sum(%1) {axes=(0, 1)} : f64[]
  return %2
}""",
}
