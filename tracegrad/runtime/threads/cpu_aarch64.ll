; The spin-wait hint and the floating-point control register of 64-bit ARM.
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal void @pause() alwaysinline {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal i64 @get_control() {
  %control = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %control
}

define internal void @set_control(i64 %control) {
  call void @llvm.aarch64.set.fpcr(i64 %control)
  ret void
}
