@tg_main_thread = external global i64
declare i64 @PyThread_get_thread_ident()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()

define i32 @tg_poll.free() {
  %main = load atomic i64, ptr @tg_main_thread monotonic, align 8
  %this = call i64 @PyThread_get_thread_ident()
  %is_main = icmp eq i64 %main, %this
  br i1 %is_main, label %check, label %done
check:
  %gil_state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %gil_state)
  %none = icmp eq i32 %raised, 0
  br i1 %none, label %done, label %interrupted
interrupted:
  ret i32 $interrupted
done:
  ret i32 0
}
