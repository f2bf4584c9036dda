@tg_USUAL = external global i8
@tg_HARMLESS = external global ptr
@PyDict_Type = external global i8
@PyList_Type = external global i8
@PyUnicode_Type = external global i8
declare ptr @PyErr_Occurred()
declare i32 @PyContextVar_Get(ptr, ptr, ptr)       ; the value is a new reference
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare i64 @PyObject_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)             ; gives no new reference
declare i32 @PyUnicode_Compare(ptr, ptr)

; 1. Containers. What is in them is held: a program may let other threads, or Python, change them.
define ptr @tg_entry(ptr %self, ptr %args, i64 %n) noinline optnone {
start:
  %position = alloca i64
  %key_at = alloca ptr
  %value_at = alloca ptr
  %block = call ptr @field(ptr %self, i64 $Offset.DATA)
  %inputs = call i64 @word(ptr %block, i64 $Word.INPUTS)
  %containers = call ptr @address(ptr %block, i64 $Word.CONTAINERS)
  %no_containers = icmp eq ptr %containers, null
  br i1 %no_containers, label %flat, label %containers_fit
flat:
  %flat_fits = icmp eq i64 %n, %inputs
  br i1 %flat_fits, label %ready, label %miss

containers_fit:
  %arguments = load i64, ptr %containers
  %count_fits = icmp eq i64 %n, %arguments
  br i1 %count_fits, label %open, label %miss
open:
  %held = alloca ptr, i64 %inputs
  %held_bytes = shl i64 %inputs, 3
  call void @llvm.memset.p0.i64(ptr %held, i8 0, i64 %held_bytes, i1 false)
  %first_record = getelementptr i64, ptr %containers, i64 1
  br label %next_argument

next_argument:
  %a = phi i64 [0, %open], [%a_next, %argument_done]
  %record = phi ptr [%first_record, %open], [%record_next, %argument_done]
  %more_arguments = icmp slt i64 %a, %n
  br i1 %more_arguments, label %argument, label %opened
argument:
  %argument_at = getelementptr ptr, ptr %args, i64 %a
  %argument_object = load ptr, ptr %argument_at
  %type_wanted = call ptr @address(ptr %record, i64 $ContainerLayout.TYPE)
  %length = call i64 @word(ptr %record, i64 $ContainerLayout.LENGTH)
  %items = getelementptr i64, ptr %record, i64 $ContainerLayout.ITEMS
  store i64 0, ptr %position
  %is_input = icmp eq ptr %type_wanted, null
  br i1 %is_input, label %next_item, label %container
container:
  %type = call ptr @field(ptr %argument_object, i64 $Offset.TYPE)
  %type_fits = icmp eq ptr %type, %type_wanted
  br i1 %type_fits, label %measure, label %closed
measure:
  %size = call i64 @PyObject_Size(ptr %argument_object)
  %size_fits = icmp eq i64 %size, %length
  br i1 %size_fits, label %next_item, label %closed

next_item:
  %i = phi i64 [0, %argument], [0, %measure], [%i_next, %hold]
  %more_items = icmp slt i64 %i, %length
  br i1 %more_items, label %item, label %argument_done
item:
  %pair = shl i64 %i, 1
  %second = add i64 %pair, 1
  %key_wanted = call ptr @address(ptr %items, i64 %pair)
  %input = call i64 @word(ptr %items, i64 %second)
  %held_at = getelementptr ptr, ptr %held, i64 %input
  br i1 %is_input, label %of_argument, label %of_container
of_argument:
  call void @Py_IncRef(ptr %argument_object)
  store ptr %argument_object, ptr %held_at
  br label %hold
of_container:
  %is_dict = icmp eq ptr %type_wanted, @PyDict_Type
  br i1 %is_dict, label %of_dict, label %of_sequence
of_sequence:
  %is_list = icmp eq ptr %type_wanted, @PyList_Type
  br i1 %is_list, label %of_list, label %of_tuple
of_list:
  %list_item = call ptr @list_item(ptr %argument_object, i64 %i)
  store ptr %list_item, ptr %held_at
  %is_shorter = icmp eq ptr %list_item, null         ; another thread has removed items
  br i1 %is_shorter, label %shorter, label %hold
shorter:
  call void @PyErr_Clear()
  br label %closed
of_tuple:
  %tuple_item = call ptr @PyTuple_GetItem(ptr %argument_object, i64 %i)
  call void @Py_IncRef(ptr %tuple_item)
  store ptr %tuple_item, ptr %held_at
  br label %hold
of_dict:
  %has_item = call i32 @next_of_dict(ptr %argument_object, ptr %position, ptr %key_at, ptr %value_at)
  %is_none = icmp eq i32 %has_item, 0
  br i1 %is_none, label %closed, label %of_key
of_key:
  %value = load ptr, ptr %value_at
  store ptr %value, ptr %held_at
  %key = load ptr, ptr %key_at
  %is_key = icmp eq ptr %key, %key_wanted
  br i1 %is_key, label %key_fits, label %other_key
other_key:
  %key_type = call ptr @field(ptr %key, i64 $Offset.TYPE)
  %is_text = icmp eq ptr %key_type, @PyUnicode_Type
  br i1 %is_text, label %compare, label %no_key
compare:
  %order = call i32 @PyUnicode_Compare(ptr %key, ptr %key_wanted)
  %is_equal = icmp eq i32 %order, 0
  br i1 %is_equal, label %key_fits, label %no_key
no_key:
  call void @drop(ptr %key)
  br label %closed
key_fits:
  call void @drop(ptr %key)
  br label %hold
hold:
  %i_next = add i64 %i, 1
  br label %next_item
argument_done:
  %pairs = shl i64 %length, 1
  %record_next = getelementptr i64, ptr %items, i64 %pairs
  %a_next = add i64 %a, 1
  br label %next_argument

opened:
  br label %ready
ready:
  %inputs_at = phi ptr [%args, %flat], [%held, %opened]
  %unpacked_count = phi i64 [0, %flat], [%inputs, %opened]
  %result = call ptr @call(ptr %block, ptr %inputs_at)
  br label %next_release
closed:
  call void @Py_IncRef(ptr @tg_MISS)
  br label %next_release
next_release:
  %leaving = phi ptr [%result, %ready], [@tg_MISS, %closed], [%leaving, %release]
  %held_at_end = phi ptr [%inputs_at, %ready], [%held, %closed], [%held_at_end, %release]
  %held_count = phi i64 [%unpacked_count, %ready], [%inputs, %closed], [%held_count, %release]
  %r = phi i64 [0, %ready], [0, %closed], [%r_next, %release]
  %more_held = icmp slt i64 %r, %held_count
  br i1 %more_held, label %release, label %released
release:
  %release_at = getelementptr ptr, ptr %held_at_end, i64 %r
  %released_object = load ptr, ptr %release_at
  call void @Py_DecRef(ptr %released_object)
  %r_next = add i64 %r, 1
  br label %next_release
released:
  ret ptr %leaving
miss:
  call void @Py_IncRef(ptr @tg_MISS)
  ret ptr @tg_MISS
}

; 2. What is around the call.
define internal i1 @holds(ptr %block) alwaysinline {
start:
  %state_at = alloca ptr
  %variable = call ptr @address(ptr %block, i64 $Word.TRAPS)
  %ignores_errors = icmp eq ptr %variable, null
  br i1 %ignores_errors, label %guards, label %read_state
read_state:
  %state_status = call i32 @PyContextVar_Get(ptr %variable, ptr null, ptr %state_at)
  %has_no_state = icmp slt i32 %state_status, 0
  br i1 %has_no_state, label %failed, label %has_state
has_state:
  %state = load ptr, ptr %state_at
  call void @Py_DecRef(ptr %state)                 ; the context keeps it
  %usual = icmp eq ptr %state, @tg_USUAL
  br i1 %usual, label %guards, label %unusual
unusual:
  %harmless = load ptr, ptr @tg_HARMLESS
  %is_harmless = icmp eq ptr %state, %harmless
  br i1 %is_harmless, label %guards, label %no

guards:
  %guard_slots = call ptr @address(ptr %block, i64 $Word.GUARD_SLOTS)
  %count = call i64 @word(ptr %block, i64 $Word.GUARD_SLOT_COUNT)
  br label %next
next:
  %p = phi i64 [0, %guards], [%p_next, %unchanged]
  %more = icmp slt i64 %p, %count
  br i1 %more, label %guard, label %yes
guard:
  %offset = mul i64 %p, $GuardSlot.SIZE
  %record = getelementptr i64, ptr %guard_slots, i64 %offset
  %space = call ptr @address(ptr %record, i64 $GuardSlot.SPACE)
  %at = call ptr @address(ptr %record, i64 $GuardSlot.AT)
  %wanted = call ptr @address(ptr %record, i64 $GuardSlot.WANTED)
  %is_pointer = icmp eq ptr %space, null
  br i1 %is_pointer, label %pointer, label %lookup
pointer:
  %pointer_value = load ptr, ptr %at
  br label %found
lookup:
  %dict_value = call ptr @dict_item(ptr %space, ptr %at)
  %nothing = icmp eq ptr %dict_value, null
  br i1 %nothing, label %no_item, label %found
no_item:
  %error = call ptr @PyErr_Occurred()
  %no_error = icmp eq ptr %error, null
  br i1 %no_error, label %found, label %failed
found:
  %current = phi ptr [%pointer_value, %pointer], [%dict_value, %lookup], [null, %no_item]
  %item = phi ptr [null, %pointer], [%dict_value, %lookup], [null, %no_item]
  %same = icmp eq ptr %current, %wanted
  br i1 %same, label %unchanged, label %other_object
other_object:
  %exact = call i64 @word(ptr %record, i64 $GuardSlot.EXACT)
  %accepts_equal = icmp ne i64 %exact, 0
  %is_set = icmp ne ptr %current, null
  %is_alive = call i1 @may_read(ptr %item)
  %is_object = and i1 %is_set, %is_alive
  %may_be_equal = and i1 %accepts_equal, %is_object
  br i1 %may_be_equal, label %types, label %changed
types:
  %current_type = call ptr @field(ptr %current, i64 $Offset.TYPE)
  %wanted_type = call ptr @field(ptr %wanted, i64 $Offset.TYPE)
  %same_type = icmp eq ptr %current_type, %wanted_type
  br i1 %same_type, label %compare, label %changed
compare:
  %equal = call i32 @PyObject_RichCompareBool(ptr %current, ptr %wanted, i32 2)   ; Py_EQ
  %is_equal = icmp eq i32 %equal, 1
  br i1 %is_equal, label %unchanged, label %changed
unchanged:
  call void @drop(ptr %item)
  %p_next = add i64 %p, 1
  br label %next

yes:
  ret i1 true
changed:
  call void @drop(ptr %item)
  br label %no
failed:
  call void @PyErr_Clear()
  ret i1 false
no:
  ret i1 false
}
