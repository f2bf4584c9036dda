@tg_PyArray_Type = external global i8
@tg_MISS = external global i8
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)                       ; does nothing for null
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)        ; steals its item
declare ptr @PyErr_NoMemory()
declare void @PyErr_Clear()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare ptr @tg_PyArray_New(ptr, i32, ptr, i32, ptr, ptr, i32, i32, ptr)
declare ptr @tg_PyArray_Scalar(ptr, ptr, ptr)
declare ptr @tg_PyDataMem_SetHandler(ptr)          ; returns the former one, as a new reference
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal ptr @field(ptr %object, i64 %offset) alwaysinline {
  %address = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %address
  ret ptr %value
}
define internal i32 @field32(ptr %object, i64 %offset) alwaysinline {
  %address = getelementptr i8, ptr %object, i64 %offset
  %value = load i32, ptr %address
  ret i32 %value
}
define internal i64 @word(ptr %block, i64 %index) alwaysinline {
  %address = getelementptr i64, ptr %block, i64 %index
  %value = load i64, ptr %address
  ret i64 %value
}
define internal ptr @address(ptr %block, i64 %index) alwaysinline {
  %address = getelementptr i64, ptr %block, i64 %index
  %value = load ptr, ptr %address
  ret ptr %value
}

; Exchange the word of an arena for another, as calls do.
define i64 @tg_exchange(ptr %arena_word, i64 %value) {
  %before = atomicrmw xchg ptr %arena_word, i64 %value acq_rel
  ret i64 %before
}

; 1, 2: see prologue.ll.
define internal ptr @call(ptr %block, ptr %args) noinline optnone {
start:
  %stack_arena = alloca [$stack_arena x i8], align 64
  %inputs = call i64 @word(ptr %block, i64 $Word.INPUTS)
  %holds = call i1 @holds(ptr %block)
  br i1 %holds, label %prepare, label %miss

prepare:
  %outputs = call i64 @word(ptr %block, i64 $Word.OUTPUTS)
  %both = add i64 %inputs, %outputs
  %all = add i64 %both, 1
  %pointers = alloca ptr, i64 %all
  %results = alloca ptr, i64 %outputs                 ; the output objects, null where there is none yet
  %slots = alloca [$slot_bytes x i8], i64 %outputs, align 16   ; the values of 0-d outputs
  %result_bytes = shl i64 %outputs, 3
  call void @llvm.memset.p0.i64(ptr %results, i8 0, i64 %result_bytes, i1 false)
  %input_records = getelementptr i64, ptr %block, i64 $Word.HEADER
  br label %next_input

; The inputs.
next_input:
  %i = phi i64 [0, %prepare], [%i_next, %input_done]
  %record = phi ptr [%input_records, %prepare], [%record_next, %input_done]
  %more_inputs = icmp slt i64 %i, %inputs
  br i1 %more_inputs, label %input, label %overwritten_inputs

input:
  %arg_at = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %arg_at
  %type = call ptr @field(ptr %arg, i64 $Offset.TYPE)
  %type_wanted = call ptr @address(ptr %record, i64 0)
  %dtype_wanted = call i64 @word(ptr %record, i64 1)
  %nd_wanted = call i64 @word(ptr %record, i64 2)
  %dims_wanted = getelementptr i64, ptr %record, i64 3
  %is_strided = icmp eq ptr %type_wanted, null
  %type_expected = select i1 %is_strided, ptr @tg_PyArray_Type, ptr %type_wanted
  %type_fits = icmp eq ptr %type, %type_expected
  br i1 %type_fits, label %kind, label %miss

kind:
  %is_float = icmp eq i64 %dtype_wanted, 0
  br i1 %is_float, label %float, label %array

float:
  %float_at = getelementptr i8, ptr %arg, i64 $Offset.FLOAT
  br label %input_done

array:
  %descr = call ptr @field(ptr %arg, i64 $Offset.DESCR)
  %dtype_at = getelementptr i8, ptr %descr, i64 $Offset.DTYPE
  %dtype = load i64, ptr %dtype_at
  %dtype_fits = icmp eq i64 %dtype, %dtype_wanted
  %nd32 = call i32 @field32(ptr %arg, i64 $Offset.ND)
  %nd = sext i32 %nd32 to i64
  %nd_fits = icmp eq i64 %nd, %nd_wanted
  %flags32 = call i32 @field32(ptr %arg, i64 $Offset.ARRAY_FLAGS)
  %flags_wanted = select i1 %is_strided, i32 $aligned, i32 $good_flags
  %flags_masked = and i32 %flags32, %flags_wanted
  %flags_fit = icmp eq i32 %flags_masked, %flags_wanted
  %two_fit = and i1 %dtype_fits, %nd_fits
  %three_fit = and i1 %two_fit, %flags_fit
  br i1 %three_fit, label %array_dims, label %miss

array_dims:
  %dims = call ptr @field(ptr %arg, i64 $Offset.DIMS)
  br label %next_dim
next_dim:
  %d = phi i64 [0, %array_dims], [%d_next, %dim]
  %more_dims = icmp slt i64 %d, %nd_wanted
  br i1 %more_dims, label %dim, label %array_fits
dim:
  %size = call i64 @word(ptr %dims, i64 %d)
  %size_wanted = call i64 @word(ptr %dims_wanted, i64 %d)
  %d_next = add i64 %d, 1
  %size_fits = icmp eq i64 %size, %size_wanted
  br i1 %size_fits, label %next_dim, label %miss

array_fits:
  %data = call ptr @field(ptr %arg, i64 $Offset.DATA)
  br i1 %is_strided, label %strided, label %input_done

; An array that is not in row-major order has the strides it is read by.
strided:
  %strides = call ptr @field(ptr %arg, i64 $Offset.STRIDES)
  %strides_wanted = getelementptr i64, ptr %dims_wanted, i64 %nd_wanted
  br label %next_axis
next_axis:
  %a = phi i64 [0, %strided], [%a_next, %axis]
  %more_axes = icmp slt i64 %a, %nd_wanted
  br i1 %more_axes, label %axis, label %strided_fits
axis:
  %length = call i64 @word(ptr %dims_wanted, i64 %a)
  %stride = call i64 @word(ptr %strides, i64 %a)
  %stride_wanted = call i64 @word(ptr %strides_wanted, i64 %a)
  %a_next = add i64 %a, 1
  %is_one = icmp eq i64 %length, 1
  %same_stride = icmp eq i64 %stride, %stride_wanted
  %stride_fits = or i1 %is_one, %same_stride
  br i1 %stride_fits, label %next_axis, label %miss
strided_fits:
  %lowest_offset = call i64 @word(ptr %strides_wanted, i64 %nd_wanted)
  %lowest = getelementptr i8, ptr %data, i64 %lowest_offset
  %strides_end = getelementptr i64, ptr %strides_wanted, i64 1
  br label %input_done

input_done:
  %input_pointer = phi ptr [%float_at, %float], [%data, %array_fits], [%lowest, %strided_fits]
  %sizes_at = phi ptr [%dims_wanted, %float], [%dims_wanted, %array_fits], [%strides_end, %strided_fits]
  %input_at = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %input_pointer, ptr %input_at
  %record_next = getelementptr i64, ptr %sizes_at, i64 %nd_wanted
  %i_next = add i64 %i, 1
  br label %next_input

; Inputs that are written to.
overwritten_inputs:
  %disjoint_checks = call ptr @address(ptr %block, i64 $Word.DISJOINT)
  %disjoint_count = call i64 @word(ptr %block, i64 $Word.DISJOINT_COUNT)
  br label %next_check
next_check:
  %q = phi i64 [0, %overwritten_inputs], [%q_next, %disjoint]
  %more_checks = icmp slt i64 %q, %disjoint_count
  br i1 %more_checks, label %check, label %allocate
check:
  %check_offset = mul i64 %q, $DisjointCheck.SIZE
  %check_record = getelementptr i64, ptr %disjoint_checks, i64 %check_offset
  %written = call i64 @word(ptr %check_record, i64 $DisjointCheck.WRITTEN)
  %other = call i64 @word(ptr %check_record, i64 $DisjointCheck.OTHER)
  %written_at = getelementptr ptr, ptr %args, i64 %written
  %written_array = load ptr, ptr %written_at
  %written_flags = call i32 @field32(ptr %written_array, i64 $Offset.ARRAY_FLAGS)
  %flags_word = call i64 @word(ptr %check_record, i64 $DisjointCheck.FLAGS)
  %flags_needed = trunc i64 %flags_word to i32
  %flags_set = and i32 %written_flags, %flags_needed
  %may_be_written = icmp eq i32 %flags_set, %flags_needed
  br i1 %may_be_written, label %spans, label %miss
spans:
  %written_data = call i64 @word(ptr %pointers, i64 %written)
  %other_data = call i64 @word(ptr %pointers, i64 %other)
  %written_bytes = call i64 @word(ptr %check_record, i64 $DisjointCheck.WRITTEN_BYTES)
  %other_bytes = call i64 @word(ptr %check_record, i64 $DisjointCheck.OTHER_BYTES)
  %written_end = add i64 %written_data, %written_bytes
  %other_end = add i64 %other_data, %other_bytes
  %is_before = icmp ule i64 %written_end, %other_data
  %is_after = icmp ule i64 %other_end, %written_data
  %is_itself = icmp eq i64 %written, %other
  %is_apart = or i1 %is_before, %is_after
  %is_disjoint = or i1 %is_apart, %is_itself
  br i1 %is_disjoint, label %disjoint, label %miss
disjoint:
  %q_next = add i64 %q, 1
  br label %next_check

; 3. Outputs, under the block's memory handler if it has one; NumPy's is put back at once.
allocate:
  %handler = call ptr @address(ptr %block, i64 $Word.HANDLER)
  %own_memory = icmp eq ptr %handler, null
  br i1 %own_memory, label %handled, label %swap
swap:
  %former = call ptr @tg_PyDataMem_SetHandler(ptr %handler)
  %not_swapped = icmp eq ptr %former, null
  br i1 %not_swapped, label %failed, label %handled
handled:
  %replaced = phi ptr [null, %allocate], [%former, %swap]
  br label %next_output

next_output:
  %k = phi i64 [0, %handled], [%k_next, %output_done]
  %output_record = phi ptr [%record, %handled], [%output_record_next, %output_done]
  %more_outputs = icmp slt i64 %k, %outputs
  br i1 %more_outputs, label %output, label %allocated
output:
  %output_nd = call i64 @word(ptr %output_record, i64 2)
  %output_dims = getelementptr i64, ptr %output_record, i64 3
  %is_scalar = icmp eq i64 %output_nd, 0
  br i1 %is_scalar, label %scalar_slot, label %new_array
scalar_slot:
  %slot = getelementptr [$slot_bytes x i8], ptr %slots, i64 %k
  br label %output_done
new_array:
  %number = call i64 @word(ptr %output_record, i64 0)
  %is_donated = icmp slt i64 %number, 0
  br i1 %is_donated, label %donated_array, label %own_array
donated_array:                                       ; an input, which the program overwrites
  %donor = sub i64 -1, %number
  %donor_at = getelementptr ptr, ptr %args, i64 %donor
  %donor_array = load ptr, ptr %donor_at
  call void @Py_IncRef(ptr %donor_array)
  %donated_at = getelementptr ptr, ptr %results, i64 %k
  store ptr %donor_array, ptr %donated_at
  br label %array_allocated
own_array:
  %number32 = trunc i64 %number to i32
  %output_nd32 = trunc i64 %output_nd to i32
  %new = call ptr @tg_PyArray_New(ptr @tg_PyArray_Type, i32 %output_nd32, ptr %output_dims, i32 %number32,
                                  ptr null, ptr null, i32 0, i32 0, ptr null)
  %made_at = getelementptr ptr, ptr %results, i64 %k
  store ptr %new, ptr %made_at
  %no_array = icmp eq ptr %new, null
  br i1 %no_array, label %allocated, label %array_allocated
array_allocated:
  %array_object = phi ptr [%donor_array, %donated_array], [%new, %own_array]
  %new_data = call ptr @field(ptr %array_object, i64 $Offset.DATA)
  br label %output_done
output_done:
  %output_pointer = phi ptr [%slot, %scalar_slot], [%new_data, %array_allocated]
  %output_index = add i64 %inputs, %k
  %output_at = getelementptr ptr, ptr %pointers, i64 %output_index
  store ptr %output_pointer, ptr %output_at
  %output_record_next = getelementptr i64, ptr %output_dims, i64 %output_nd
  %k_next = add i64 %k, 1
  br label %next_output

allocated:
  %all_allocated = phi i1 [true, %next_output], [false, %own_array]
  %nothing_replaced = icmp eq ptr %replaced, null
  br i1 %nothing_replaced, label %restored, label %restore
restore:                                           ; Python code may run: it must not meet an exception
  br i1 %all_allocated, label %restore_quietly, label %restore_failed
restore_failed:
  call void @PyErr_Clear()
  br label %restore_quietly
restore_quietly:
  %ours = call ptr @tg_PyDataMem_SetHandler(ptr %replaced)
  call void @Py_DecRef(ptr %ours)
  call void @Py_DecRef(ptr %replaced)
  br i1 %all_allocated, label %find_arena, label %no_memory
restored:
  br i1 %all_allocated, label %find_arena, label %failed

; The arena: on the stack if small; else what the last call left, or new memory if another thread has that.
find_arena:
  %arena_bytes = call i64 @word(ptr %block, i64 $Word.ARENA_BYTES)
  %arena_word = call ptr @address(ptr %block, i64 $Word.ARENA)
  %arena_is_large = icmp ugt i64 %arena_bytes, $stack_arena
  br i1 %arena_is_large, label %take_arena, label %go
take_arena:
  %idle_word = atomicrmw xchg ptr %arena_word, i64 0 acq_rel
  %idle_arena = inttoptr i64 %idle_word to ptr
  %no_idle_arena = icmp eq ptr %idle_arena, null
  br i1 %no_idle_arena, label %new_arena, label %go
new_arena:
  %is_huge = icmp uge i64 %arena_bytes, $huge_bytes
  %alignment = select i1 %is_huge, i64 $huge_page, i64 4096
  %up_to_page = add i64 %arena_bytes, 4095
  %arena_pages = and i64 %up_to_page, -4096
  %fresh = call ptr @aligned_alloc(i64 %alignment, i64 %arena_pages)
  %no_arena = icmp eq ptr %fresh, null
  br i1 %no_arena, label %no_memory, label %advise
advise:
  br i1 %is_huge, label %huge_arena, label %go
huge_arena:
  %ignored_advice = call i32 @madvise(ptr %fresh, i64 %arena_bytes, i32 14)   ; MADV_HUGEPAGE
  br label %go
go:
  %arena = phi ptr [%stack_arena, %find_arena], [%idle_arena, %take_arena], [%fresh, %advise], [%fresh, %huge_arena]
  %arena_at = getelementptr ptr, ptr %pointers, i64 %both
  store ptr %arena, ptr %arena_at

; 4. The program.
  %flags = call i64 @word(ptr %block, i64 $Word.FLAGS)
  %values = call ptr @address(ptr %block, i64 $Word.VALUES)
  %program = call ptr @address(ptr %block, i64 $Word.RUN)
  %release_bit = and i64 %flags, $Flag.RELEASE_GIL
  %needs_gil = icmp eq i64 %release_bit, 0
  br i1 %needs_gil, label %run, label %release
release:
  %saved = call ptr @PyEval_SaveThread()
  br label %run
run:
  %thread = phi ptr [null, %go], [%saved, %release]
  %status = call i32 %program(ptr %values, ptr %pointers)
  %holds_gil = icmp eq ptr %thread, null
  br i1 %holds_gil, label %ran, label %acquire
acquire:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %ran
ran:
  br i1 %arena_is_large, label %put_arena_back, label %arena_done
put_arena_back:
  %arena_value = ptrtoint ptr %arena to i64
  %surplus_word = atomicrmw xchg ptr %arena_word, i64 %arena_value acq_rel
  %surplus = inttoptr i64 %surplus_word to ptr
  call void @free(ptr %surplus)                    ; null, unless another thread was here
  br label %arena_done
arena_done:
  %succeeded = icmp eq i32 %status, 0
  br i1 %succeeded, label %next_box, label %stopped
stopped:
  %interrupted = icmp eq i32 %status, $interrupted
  br i1 %interrupted, label %failed, label %drop

; 5. The result.
next_box:
  %b = phi i64 [0, %arena_done], [%b_next, %box_done]
  %box_record = phi ptr [%record, %arena_done], [%box_record_next, %box_done]
  %more_boxes = icmp slt i64 %b, %outputs
  br i1 %more_boxes, label %box, label %finish
box:
  %box_nd = call i64 @word(ptr %box_record, i64 2)
  %is_array = icmp ne i64 %box_nd, 0
  br i1 %is_array, label %box_done, label %box_scalar
box_scalar:
  %box_slot = getelementptr [$slot_bytes x i8], ptr %slots, i64 %b
  %box_descr = call ptr @address(ptr %box_record, i64 1)
  %scalar = call ptr @tg_PyArray_Scalar(ptr %box_slot, ptr %box_descr, ptr null)
  %box_at = getelementptr ptr, ptr %results, i64 %b
  store ptr %scalar, ptr %box_at
  %no_scalar = icmp eq ptr %scalar, null
  br i1 %no_scalar, label %failed, label %box_done
box_done:
  %box_size = add i64 %box_nd, 3
  %box_record_next = getelementptr i64, ptr %box_record, i64 %box_size
  %b_next = add i64 %b, 1
  br label %next_box

finish:
  %tuple_bit = and i64 %flags, $Flag.RETURNS_TUPLE
  %is_single = icmp eq i64 %tuple_bit, 0
  br i1 %is_single, label %single, label %tuple
single:
  %only = load ptr, ptr %results
  ret ptr %only
tuple:
  %result = call ptr @PyTuple_New(i64 %outputs)
  %no_tuple = icmp eq ptr %result, null
  br i1 %no_tuple, label %failed, label %next_item
next_item:
  %t = phi i64 [0, %tuple], [%t_next, %item]
  %more_items = icmp slt i64 %t, %outputs
  br i1 %more_items, label %item, label %full
item:
  %item_at = getelementptr ptr, ptr %results, i64 %t
  %item_object = load ptr, ptr %item_at
  %ignored = call i32 @PyTuple_SetItem(ptr %result, i64 %t, ptr %item_object)
  %t_next = add i64 %t, 1
  br label %next_item
full:
  ret ptr %result

; The other ways out: MISS, or null with an exception set. Both drop the results so far.
no_memory:
  %nothing = call ptr @PyErr_NoMemory()
  br label %failed
failed:
  br label %drop
drop:
  %leaving = phi ptr [@tg_MISS, %stopped], [null, %failed]
  br label %next_drop
next_drop:
  %o = phi i64 [0, %drop], [%o_next, %drop_one]
  %more_drops = icmp slt i64 %o, %outputs
  br i1 %more_drops, label %drop_one, label %dropped
drop_one:
  %drop_at = getelementptr ptr, ptr %results, i64 %o
  %drop_object = load ptr, ptr %drop_at
  call void @Py_DecRef(ptr %drop_object)
  %o_next = add i64 %o, 1
  br label %next_drop
dropped:
  %is_error = icmp eq ptr %leaving, null
  br i1 %is_error, label %error, label %miss
error:
  ret ptr null
miss:
  call void @Py_IncRef(ptr @tg_MISS)
  ret ptr @tg_MISS
}
