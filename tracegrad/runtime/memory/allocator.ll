; A block is 64 bytes of header, its capacity and what the C library gave, and the data. That begins in one of several
; places of a page in turn, of which NumPy's large arrays have the first (see `codegen.plan.arena`).
@slots = internal global [$num_slots x ptr] zeroinitializer        ; idle blocks, or null
@victim = internal global i64 0                                ; the slot to empty next
@place = internal global i64 0                                 ; of the next large block
@idle = internal global i64 0                                  ; bytes in idle blocks
@busy = internal global i32 0                                  ; whether a thread reads or writes the slots
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)

; Whether this thread may use the slots from now on: no other thread does.
define internal i1 @enter() {
  %before = atomicrmw xchg ptr @busy, i32 1 acquire
  %is_free = icmp eq i32 %before, 0
  ret i1 %is_free
}

define internal void @leave() {
  store atomic i32 0, ptr @busy release, align 4
  ret void
}

define internal void @empty(ptr %slot) {
  %block = load ptr, ptr %slot
  %vacant = icmp eq ptr %block, null
  br i1 %vacant, label %done, label %release
release:
  %capacity = load i64, ptr %block
  %before = load i64, ptr @idle
  %after = sub i64 %before, %capacity
  store atomic i64 %after, ptr @idle monotonic, align 8
  store ptr null, ptr %slot
  call void @give_back(ptr %block)
  br label %done
done:
  ret void
}

define internal void @give_back(ptr %block) {
  %at = getelementptr i64, ptr %block, i64 1
  %memory = load ptr, ptr %at
  call void @free(ptr %memory)
  ret void
}

define void @tg_pool_clear() {
entry:
  %entered = call i1 @enter()
  br i1 %entered, label %next, label %done
next:
  %i = phi i64 [0, %entry], [%j, %one]
  %more = icmp slt i64 %i, $num_slots
  br i1 %more, label %one, label %cleared
one:
  %slot = getelementptr ptr, ptr @slots, i64 %i
  call void @empty(ptr %slot)
  %j = add i64 %i, 1
  br label %next
cleared:
  call void @leave()
  br label %done
done:
  ret void
}

define i64 @tg_pool_idle() {
  %bytes = load atomic i64, ptr @idle monotonic, align 8
  ret i64 %bytes
}

define ptr @tg_pool_malloc(ptr %context, i64 %size) {
entry:
  %overflows = icmp ugt i64 %size, $max_bytes
  br i1 %overflows, label %fail, label %first
first:
  %slack = lshr i64 %size, 3
  %most = add i64 %size, %slack
  %is_small = icmp ult i64 %size, $min_retained_bytes
  br i1 %is_small, label %fresh, label %search
search:
  %entered = call i1 @enter()
  br i1 %entered, label %next, label %fresh

next:                                              ; an idle block that fits with little waste
  %i = phi i64 [0, %search], [%j, %unfit]
  %more = icmp slt i64 %i, $num_slots
  br i1 %more, label %inspect, label %nothing_fits
inspect:
  %slot = getelementptr ptr, ptr @slots, i64 %i
  %block = load ptr, ptr %slot
  %vacant = icmp eq ptr %block, null
  br i1 %vacant, label %unfit, label %measure
measure:
  %capacity = load i64, ptr %block
  %enough = icmp uge i64 %capacity, %size
  %wastes_little = icmp ule i64 %capacity, %most
  %fits = and i1 %enough, %wastes_little
  br i1 %fits, label %take, label %unfit
unfit:
  %j = add i64 %i, 1
  br label %next
take:
  store ptr null, ptr %slot
  %before = load i64, ptr @idle
  %after = sub i64 %before, %capacity
  store atomic i64 %after, ptr @idle monotonic, align 8
  call void @leave()
  br label %found
nothing_fits:
  call void @leave()
  br label %fresh

fresh:
  %room = select i1 %is_small, i64 127, i64 $slack_bytes    ; header, and up to a multiple of 64; or two pages more
  %padded = add i64 %size, %room
  %bytes = and i64 %padded, -64
  %new = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %none = icmp eq ptr %new, null
  br i1 %none, label %retry, label %place_block
retry:                                             ; what lies idle may be what lacks
  call void @tg_pool_clear()
  %retried = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %still_none = icmp eq ptr %retried, null
  br i1 %still_none, label %fail, label %place_block
place_block:
  %memory = phi ptr [%new, %fresh], [%retried, %retry]
  %number = load atomic i64, ptr @place monotonic, align 8   ; whichever place it is, the block is right
  %is_last = icmp eq i64 %number, $last_offset
  %up_one = add i64 %number, 1
  %following = select i1 %is_last, i64 0, i64 %up_one
  %following_place = select i1 %is_small, i64 %number, i64 %following
  store atomic i64 %following_place, ptr @place monotonic, align 8
  %begin = ptrtoint ptr %memory to i64
  %after_header = add i64 %begin, 4159                   ; a header, and up to a page
  %whole = and i64 %after_header, -4096
  %steps = mul i64 %number, $offset_step
  %within = and i64 %steps, 4095
  %chosen = add i64 %whole, %within
  %next_line = add i64 %begin, 64
  %first_byte = select i1 %is_small, i64 %next_line, i64 %chosen
  %skip = sub i64 %first_byte, %begin
  %usable = sub i64 %bytes, %skip
  %before_data = sub i64 %skip, 64
  %new_block = getelementptr i8, ptr %memory, i64 %before_data
  store i64 %usable, ptr %new_block
  %memory_at = getelementptr i64, ptr %new_block, i64 1
  store ptr %memory, ptr %memory_at
  %is_huge = icmp uge i64 %usable, $min_huge_bytes
  br i1 %is_huge, label %advise, label %found
advise:
  %up = add i64 %begin, $last_byte_of_page            ; a page may be larger than 4096 bytes
  %page_address = and i64 %up, $page_mask
  %page = inttoptr i64 %page_address to ptr
  %skipped = sub i64 %page_address, %begin
  %length = sub i64 %bytes, %skipped
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 14)
  br label %found

found:
  %block_out = phi ptr [%block, %take], [%new_block, %place_block], [%new_block, %advise]
  %data = getelementptr i8, ptr %block_out, i64 64
  ret ptr %data
fail:
  ret ptr null
}

define ptr @tg_pool_calloc(ptr %context, i64 %count, i64 %width) {
  %size = mul i64 %count, %width                   ; NumPy has checked the product
  %data = call ptr @tg_pool_malloc(ptr %context, i64 %size)
  %none = icmp eq ptr %data, null
  br i1 %none, label %done, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %size, i1 false)
  br label %done
done:
  ret ptr %data
}

define ptr @tg_pool_realloc(ptr %context, ptr %old, i64 %size) {
  %data = call ptr @tg_pool_malloc(ptr %context, i64 %size)
  %none = icmp eq ptr %data, null
  %first = icmp eq ptr %old, null
  %nothing_to_copy = or i1 %none, %first
  br i1 %nothing_to_copy, label %done, label %copy
copy:
  %block = getelementptr i8, ptr %old, i64 -64
  %capacity = load i64, ptr %block
  %length = call i64 @llvm.umin.i64(i64 %capacity, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %data, ptr %old, i64 %length, i1 false)
  call void @tg_pool_free(ptr %context, ptr %old, i64 0)
  br label %done
done:
  ret ptr %data
}

define void @tg_pool_free(ptr %context, ptr %data, i64 %ignored) {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %done, label %measure
measure:
  %block = getelementptr i8, ptr %data, i64 -64
  %capacity = load i64, ptr %block
  %large = icmp uge i64 %capacity, $min_retained_bytes
  %bounded = icmp ule i64 %capacity, $max_idle_bytes
  %worth_keeping = and i1 %large, %bounded
  br i1 %worth_keeping, label %try, label %release
try:
  %entered = call i1 @enter()
  br i1 %entered, label %make_room, label %release
release:
  call void @give_back(ptr %block)
  br label %done

make_room:                                         ; empty slots in turn until one is vacant and the sum fits
  %at = load i64, ptr @victim
  %slot = getelementptr ptr, ptr @slots, i64 %at
  %next = add i64 %at, 1
  %wrapped = urem i64 %next, $num_slots
  store i64 %wrapped, ptr @victim
  call void @empty(ptr %slot)
  %idle = load i64, ptr @idle
  %sum = add i64 %idle, %capacity
  %fits = icmp ule i64 %sum, $max_idle_bytes
  br i1 %fits, label %keep, label %make_room
keep:
  store ptr %block, ptr %slot
  store atomic i64 %sum, ptr @idle monotonic, align 8
  call void @leave()
  br label %done
done:
  ret void
}
