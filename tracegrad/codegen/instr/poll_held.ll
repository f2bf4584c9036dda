declare ptr @PyGILState_GetThisThreadState()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()

define i32 @tg_poll.held() {
  %own_state = call ptr @PyGILState_GetThisThreadState()
  %unknown = icmp eq ptr %own_state, null
  br i1 %unknown, label %done, label %check
check:
  %thread_state = call ptr @PyEval_SaveThread()
  call void @PyEval_RestoreThread(ptr %thread_state)
  %raised = call i32 @PyErr_CheckSignals()
  %none = icmp eq i32 %raised, 0
  br i1 %none, label %done, label %interrupted
interrupted:
  ret i32 $interrupted
done:
  ret i32 0
}
