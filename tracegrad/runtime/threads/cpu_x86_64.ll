; The spin-wait hint and the floating-point control register of x86-64.
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal void @pause() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @get_control() {
  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %word = load i32, ptr %slot
  %control = zext i32 %word to i64
  ret i64 %control
}

define internal void @set_control(i64 %control) {
  %slot = alloca i32
  %word = trunc i64 %control to i32
  store i32 %word, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
