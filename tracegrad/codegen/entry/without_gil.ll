; Items of dicts and lists where other threads may change these at the same time: each item is a new reference.
declare i32 @PyDict_GetItemRef(ptr, ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)       ; gives no new references
declare ptr @PyList_GetItemRef(ptr, i64)
declare void @PyCriticalSection_Begin(ptr, ptr)
declare void @PyCriticalSection_End(ptr)

; What is given to `drop` when it is no longer read, null without such an item.
define internal ptr @dict_item(ptr %dict, ptr %key) noinline optnone {
  %item_at = alloca ptr
  store ptr null, ptr %item_at
  %status = call i32 @PyDict_GetItemRef(ptr %dict, ptr %key, ptr %item_at)
  %item = load ptr, ptr %item_at
  ret ptr %item
}
define internal void @drop(ptr %item) alwaysinline {
  call void @Py_DecRef(ptr %item)
  ret void
}
; Whether the object at a guarded location may be read; `%item` is null unless it is an item of a dict. Another thread
; may free what a cell refers to.
define internal i1 @may_read(ptr %item) alwaysinline {
  %is_held = icmp ne ptr %item, null
  ret i1 %is_held
}
; A new reference.
define internal ptr @list_item(ptr %list, i64 %i) alwaysinline {
  %item = call ptr @PyList_GetItemRef(ptr %list, i64 %i)
  ret ptr %item
}
; As PyDict_Next; the value is a new reference, and the key is given to `drop`.
define internal i32 @next_of_dict(ptr %dict, ptr %position, ptr %key_at, ptr %value_at) noinline optnone {
  %section = alloca [8 x i64], align 16              ; a PyCriticalSection, which is smaller
  call void @PyCriticalSection_Begin(ptr %section, ptr %dict)
  %has_item = call i32 @PyDict_Next(ptr %dict, ptr %position, ptr %key_at, ptr %value_at)
  %is_none = icmp eq i32 %has_item, 0
  br i1 %is_none, label %done, label %hold
hold:
  %key = load ptr, ptr %key_at
  call void @Py_IncRef(ptr %key)
  %value = load ptr, ptr %value_at
  call void @Py_IncRef(ptr %value)
  br label %done
done:
  call void @PyCriticalSection_End(ptr %section)
  ret i32 %has_item
}
