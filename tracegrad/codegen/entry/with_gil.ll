; Items of dicts and lists where threads run Python one at a time: an item lives as long as no Python code runs.
declare ptr @PyDict_GetItemWithError(ptr, ptr)     ; these three give no new references
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyList_GetItem(ptr, i64)

; What is given to `drop` when it is no longer read, null without such an item.
define internal ptr @dict_item(ptr %dict, ptr %key) alwaysinline {
  %item = call ptr @PyDict_GetItemWithError(ptr %dict, ptr %key)
  ret ptr %item
}
define internal void @drop(ptr %item) alwaysinline {
  ret void
}
; Whether the object at a guarded location may be read; `%item` is null unless it is an item of a dict.
define internal i1 @may_read(ptr %item) alwaysinline {
  ret i1 true
}
; A new reference.
define internal ptr @list_item(ptr %list, i64 %i) alwaysinline {
  %item = call ptr @PyList_GetItem(ptr %list, i64 %i)
  call void @Py_IncRef(ptr %item)
  ret ptr %item
}
; As PyDict_Next; the value is a new reference, and the key is given to `drop`.
define internal i32 @next_of_dict(ptr %dict, ptr %position, ptr %key_at, ptr %value_at) noinline optnone {
  %has_item = call i32 @PyDict_Next(ptr %dict, ptr %position, ptr %key_at, ptr %value_at)
  %is_none = icmp eq i32 %has_item, 0
  br i1 %is_none, label %done, label %hold
hold:
  %value = load ptr, ptr %value_at
  call void @Py_IncRef(ptr %value)
  br label %done
done:
  ret i32 %has_item
}
