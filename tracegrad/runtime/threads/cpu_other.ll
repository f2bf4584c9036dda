; The spin-wait hint and the floating-point control register of other CPUs: none.

define internal void @pause() alwaysinline {
  ret void
}

define internal i64 @get_control() {
  %control = add i64 0, 0
  ret i64 %control
}

define internal void @set_control(i64 %control) {
  ret void
}
