; The functions of pool.ll for systems without POSIX threads: one thread.
define void @parallel_for(ptr %task, ptr %context, i64 %chunks) {
  %counter = alloca i64
  store i64 0, ptr %counter
  call void @run(ptr %counter, ptr %task, ptr %context, i64 %chunks)
  ret void
}
define i64 @get_limit() { ret i64 1 }
define void @set_limit(i64 %threads) { ret void }
define void @reset() { ret void }
