; The loop over the instructions of a program.
define i32 @tg_walk(ptr %words, ptr %pointers) {
entry:
  %count = call i64 @word(ptr %words, i64 $program.count)
  %first = getelementptr i64, ptr %words, i64 $program.instructions
  br label %head
head:
  %left = phi i64 [ %count, %entry ], [ %less, %next ]
  %at = phi ptr [ %first, %entry ], [ %after, %next ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %leave, label %step
step:
  %own = getelementptr i64, ptr %at, i64 $instruction.operands
  %code = call ptr @address(ptr %at, i64 $instruction.function)
  %status = call i32 %code(ptr %own, ptr %pointers)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %leave
next:
  %size = call i64 @word(ptr %at, i64 $instruction.size)
  %after = getelementptr i64, ptr %own, i64 %size
  %less = sub i64 %left, 1
  br label %head
leave:
  %result = phi i32 [ 0, %head ], [ %status, %step ]
  ret i32 %result
}

define i32 @tg_step.copy(ptr %words, ptr %pointers) noinline optnone {
  %to = call ptr @place(ptr %words, i64 $copy.target, ptr %pointers)
  %from = call ptr @place(ptr %words, i64 $copy.source, ptr %pointers)
  %size = call i64 @word(ptr %words, i64 $copy.bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret i32 0
}

define i32 @tg_step.check(ptr %words, ptr %pointers) noinline optnone {
  %place = call ptr @place(ptr %words, i64 $check.condition, ptr %pointers)
  %value = load i8, ptr %place
  %failed = icmp eq i8 %value, 0
  %status = select i1 %failed, i32 $failed, i32 0
  ret i32 %status
}

; A call of Python with the addresses of arrays.
define i32 @tg_step.call(ptr %words, ptr %pointers) noinline optnone {
entry:
  %callback = call ptr @address(ptr %words, i64 $call.callback)
  %number = call i64 @word(ptr %words, i64 $call.number)
  %count = call i64 @word(ptr %words, i64 $call.count)
  %slots = alloca ptr, i64 %count
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %inside ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %inside, label %go
inside:
  %double = mul i64 %i, 2
  %at = add i64 %double, $call.arrays
  %place = call ptr @place(ptr %words, i64 %at, ptr %pointers)
  %slot = getelementptr ptr, ptr %slots, i64 %i
  store ptr %place, ptr %slot
  %next = add i64 %i, 1
  br label %head
go:
  %status = call i32 %callback(i64 %number, ptr %slots)
  ret i32 %status
}

; Products in chunks. Little-endian: an int32 or a character has the address of the int64 that contains it.
%tiles = type { ptr, ptr }

define i32 @tg_step.matmul(ptr %words, ptr %pointers) noinline optnone {
entry:
  %context = alloca %tiles
  store ptr %words, ptr %context
  %pointers.at = getelementptr %tiles, ptr %context, i32 0, i32 1
  store ptr %pointers, ptr %pointers.at
  %chunks = call i64 @word(ptr %words, i64 $matmul.chunks)
  %one = icmp eq i64 %chunks, 1
  br i1 %one, label %alone, label %each
alone:
  call void @tile(ptr %context, i64 0)
  ret i32 0
each:
  %each.function = call ptr @address(ptr %words, i64 $matmul.each_chunk)
  call void %each.function(ptr @tile, ptr %context, i64 %chunks)
  ret i32 0
}

define internal void @tile(ptr %context, i64 %chunk) {
entry:
  %words = load ptr, ptr %context
  %pointers.at = getelementptr %tiles, ptr %context, i32 0, i32 1
  %pointers = load ptr, ptr %pointers.at
  %routine = call ptr @address(ptr %words, i64 $matmul.routine)
  %count = call i64 @word(ptr %words, i64 $matmul.count)
  %chunk_count = call i64 @word(ptr %words, i64 $matmul.chunk_count)
  %low = mul i64 %chunk, %chunk_count
  %end = add i64 %low, %chunk_count
  %inner = icmp slt i64 %end, %count
  %high = select i1 %inner, i64 %end, i64 %count
  %run_length = call i64 @word(ptr %words, i64 $matmul.run)
  %a = call ptr @place(ptr %words, i64 $matmul.a, ptr %pointers)
  %a.outer = call i64 @word(ptr %words, i64 $matmul.a_run_stride)
  %a.inner = call i64 @word(ptr %words, i64 $matmul.a_stride)
  %b = call ptr @place(ptr %words, i64 $matmul.b, ptr %pointers)
  %b.outer = call i64 @word(ptr %words, i64 $matmul.b_run_stride)
  %b.inner = call i64 @word(ptr %words, i64 $matmul.b_stride)
  %c = call ptr @place(ptr %words, i64 $matmul.c, ptr %pointers)
  %c.outer = call i64 @word(ptr %words, i64 $matmul.c_run_stride)
  %c.inner = call i64 @word(ptr %words, i64 $matmul.c_stride)
  %transa = getelementptr i64, ptr %words, i64 $matmul.transa
  %transb = getelementptr i64, ptr %words, i64 $matmul.transb
  %height = getelementptr i64, ptr %words, i64 $matmul.height
  %width = getelementptr i64, ptr %words, i64 $matmul.width
  %depth = getelementptr i64, ptr %words, i64 $matmul.depth
  %lda = getelementptr i64, ptr %words, i64 $matmul.lda
  %ldb = getelementptr i64, ptr %words, i64 $matmul.ldb
  %ldc = getelementptr i64, ptr %words, i64 $matmul.ldc
  %alpha = getelementptr i64, ptr %words, i64 $matmul.alpha
  %beta = getelementptr i64, ptr %words, i64 $matmul.beta
  br label %head
head:
  %i = phi i64 [ %low, %entry ], [ %next, %inside ]
  %more = icmp slt i64 %i, %high
  br i1 %more, label %inside, label %leave
inside:
  %run = sdiv i64 %i, %run_length
  %product = srem i64 %i, %run_length
  %a.run = mul i64 %run, %a.outer
  %a.product = mul i64 %product, %a.inner
  %a.offset = add i64 %a.run, %a.product
  %b.run = mul i64 %run, %b.outer
  %b.product = mul i64 %product, %b.inner
  %b.offset = add i64 %b.run, %b.product
  %c.run = mul i64 %run, %c.outer
  %c.product = mul i64 %product, %c.inner
  %c.offset = add i64 %c.run, %c.product
  %a.i = getelementptr i8, ptr %a, i64 %a.offset
  %b.i = getelementptr i8, ptr %b, i64 %b.offset
  %c.i = getelementptr i8, ptr %c, i64 %c.offset
  call void %routine(ptr %transa, ptr %transb, ptr %height, ptr %width, ptr %depth, ptr %alpha, ptr %a.i, ptr %lda,
                     ptr %b.i, ptr %ldb, ptr %beta, ptr %c.i, ptr %ldc)
  %next = add i64 %i, 1
  br label %head
leave:
  ret void
}

; A kernel in chunks. Each has a copy of the operands, with rows and places of partial results of its own.
%context = type { ptr, ptr, i32 }

define i32 @tg_step.fork(ptr %words, ptr %pointers) noinline optnone {
  %context = alloca %context
  store ptr %words, ptr %context
  %pointers.at = getelementptr %context, ptr %context, i32 0, i32 1
  store ptr %pointers, ptr %pointers.at
  %status.at = getelementptr %context, ptr %context, i32 0, i32 2
  store i32 0, ptr %status.at
  %each = call ptr @address(ptr %words, i64 $fork.each_chunk)
  %chunks = call i64 @word(ptr %words, i64 $fork.chunks)
  call void %each(ptr @task, ptr %context, i64 %chunks)
  %status = load i32, ptr %status.at
  ret i32 %status
}

define internal void @task(ptr %context, i64 %chunk) noinline optnone {
entry:
  %words = load ptr, ptr %context
  %pointers.at = getelementptr %context, ptr %context, i32 0, i32 1
  %pointers = load ptr, ptr %pointers.at
  %status.at = getelementptr %context, ptr %context, i32 0, i32 2
  %kernel = call ptr @address(ptr %words, i64 $fork.kernel)
  %rows = call i64 @word(ptr %words, i64 $fork.chunk_rows)
  %total = call i64 @word(ptr %words, i64 $fork.rows)
  %count = call i64 @word(ptr %words, i64 $fork.count)
  %partials = call i64 @word(ptr %words, i64 $fork.num_partials)
  %first = getelementptr i64, ptr %words, i64 $fork.partials
  %partial_words = mul i64 %partials, $partial_size
  %shared = getelementptr i64, ptr %first, i64 %partial_words
  %own = alloca i64, i64 %count
  %size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %shared, i64 %size, i1 false)
  %low = mul i64 %chunk, %rows
  %end = add i64 %low, %rows
  %inside = icmp slt i64 %end, %total
  %high = select i1 %inside, i64 %end, i64 %total
  store i64 %low, ptr %own
  %high.at = getelementptr i64, ptr %own, i64 1
  store i64 %high, ptr %high.at
  br label %head
head:
  %p = phi i64 [ 0, %entry ], [ %next, %partial ]
  %more = icmp slt i64 %p, %partials
  br i1 %more, label %partial, label %go
partial:
  %skipped_words = mul i64 %p, $partial_size
  %record = getelementptr i64, ptr %first, i64 %skipped_words
  %position = call i64 @word(ptr %record, i64 $partial.position)
  %first.at = getelementptr i64, ptr %record, i64 $partial.first
  %index = load i64, ptr %first.at
  %begin = call i64 @word(ptr %first.at, i64 1)
  %bytes = call i64 @word(ptr %record, i64 $partial.chunk_bytes)
  %skipped = mul i64 %chunk, %bytes
  %offset = add i64 %begin, %skipped
  %index.at = getelementptr i64, ptr %own, i64 %position
  store i64 %index, ptr %index.at
  %offset.at = getelementptr i64, ptr %index.at, i64 1
  store i64 %offset, ptr %offset.at
  %next = add i64 %p, 1
  br label %head
go:
  %status = call i32 %kernel(ptr %own, ptr %pointers)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %leave, label %failed
failed:
  store atomic i32 %status, ptr %status.at monotonic, align 4
  br label %leave
leave:
  ret void
}

define i32 @tg_step.combine(ptr %words, ptr %pointers) noinline optnone {
  %out = call ptr @place(ptr %words, i64 $combine.target, ptr %pointers)
  %partial = call ptr @place(ptr %words, i64 $combine.partials, ptr %pointers)
  %size = call i64 @word(ptr %words, i64 $combine.count)
  %chunks = call i64 @word(ptr %words, i64 $combine.chunks)
  %combiner = call ptr @address(ptr %words, i64 $combine.combiner)
  call void %combiner(ptr %out, ptr %partial, i64 %size, i64 %chunks)
  ret i32 0
}
