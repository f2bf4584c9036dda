define i32 @tg_walk(ptr %words, ptr %pointers) {
entry:
  %count = load i64, ptr %words
  %first = getelementptr i64, ptr %words, i64 1
  br label %head
head:
  %left = phi i64 [ %count, %entry ], [ %less, %next ]
  %at = phi ptr [ %first, %entry ], [ %after, %next ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %leave, label %step
step:
  %code.at = getelementptr i64, ptr %at, i64 1
  %own = getelementptr i64, ptr %at, i64 2
  %code = load ptr, ptr %code.at
  %status = call i32 %code(ptr %own, ptr %pointers)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %leave
next:
  %size = load i64, ptr %at
  %after = getelementptr i64, ptr %own, i64 %size
  %less = sub i64 %left, 1
  br label %head
leave:
  %result = phi i32 [ 0, %head ], [ %status, %step ]
  ret i32 %result
}

define i32 @tg_step.copy(ptr %words, ptr %pointers) noinline optnone {
  %to = call ptr @place(ptr %words, i64 0, ptr %pointers)
  %from = call ptr @place(ptr %words, i64 2, ptr %pointers)
  %size = call i64 @word(ptr %words, i64 4)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %size, i1 false)
  ret i32 0
}

define i32 @tg_step.check(ptr %words, ptr %pointers) noinline optnone {
  %place = call ptr @place(ptr %words, i64 0, ptr %pointers)
  %value = load i8, ptr %place
  %failed = icmp eq i8 %value, 0
  %status = select i1 %failed, i32 $failed, i32 0
  ret i32 %status
}

define i32 @tg_step.call(ptr %words, ptr %pointers) noinline optnone {
entry:
  %callback = load ptr, ptr %words
  %number = call i64 @word(ptr %words, i64 1)
  %count = call i64 @word(ptr %words, i64 2)
  %slots = alloca ptr, i64 %count
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %inside ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %inside, label %go
inside:
  %double = mul i64 %i, 2
  %at = add i64 %double, 3
  %place = call ptr @place(ptr %words, i64 %at, ptr %pointers)
  %slot = getelementptr ptr, ptr %slots, i64 %i
  store ptr %place, ptr %slot
  %next = add i64 %i, 1
  br label %head
go:
  %status = call i32 %callback(i64 %number, ptr %slots)
  ret i32 %status
}

%tiles = type { ptr, ptr }

define i32 @tg_step.matmul(ptr %words, ptr %pointers) noinline optnone {
entry:
  %context = alloca %tiles
  store ptr %words, ptr %context
  %pointers.at = getelementptr %tiles, ptr %context, i32 0, i32 1
  store ptr %pointers, ptr %pointers.at
  %chunks = call i64 @word(ptr %words, i64 3)
  %one = icmp eq i64 %chunks, 1
  br i1 %one, label %alone, label %each
alone:
  call void @tile(ptr %context, i64 0)
  ret i32 0
each:
  %each.at = getelementptr i64, ptr %words, i64 4
  %each.function = load ptr, ptr %each.at
  call void %each.function(ptr @tile, ptr %context, i64 %chunks)
  ret i32 0
}

define internal void @tile(ptr %context, i64 %chunk) {
entry:
  %words = load ptr, ptr %context
  %pointers.at = getelementptr %tiles, ptr %context, i32 0, i32 1
  %pointers = load ptr, ptr %pointers.at
  %routine = load ptr, ptr %words
  %count = call i64 @word(ptr %words, i64 1)
  %share = call i64 @word(ptr %words, i64 2)
  %low = mul i64 %chunk, %share
  %end = add i64 %low, %share
  %inner = icmp slt i64 %end, %count
  %high = select i1 %inner, i64 %end, i64 %count
  %within = call i64 @word(ptr %words, i64 5)
  %a = call ptr @place(ptr %words, i64 6, ptr %pointers)
  %a.outer = call i64 @word(ptr %words, i64 8)
  %a.inner = call i64 @word(ptr %words, i64 9)
  %b = call ptr @place(ptr %words, i64 10, ptr %pointers)
  %b.outer = call i64 @word(ptr %words, i64 12)
  %b.inner = call i64 @word(ptr %words, i64 13)
  %c = call ptr @place(ptr %words, i64 14, ptr %pointers)
  %c.outer = call i64 @word(ptr %words, i64 16)
  %c.inner = call i64 @word(ptr %words, i64 17)
  %a.letter = getelementptr i64, ptr %words, i64 18
  %b.letter = getelementptr i64, ptr %words, i64 19
  %n = getelementptr i64, ptr %words, i64 20
  %m = getelementptr i64, ptr %words, i64 21
  %k = getelementptr i64, ptr %words, i64 22
  %a.leading = getelementptr i64, ptr %words, i64 23
  %b.leading = getelementptr i64, ptr %words, i64 24
  %c.leading = getelementptr i64, ptr %words, i64 25
  %alpha = getelementptr i64, ptr %words, i64 26
  %beta = getelementptr i64, ptr %words, i64 27
  br label %head
head:
  %i = phi i64 [ %low, %entry ], [ %next, %inside ]
  %more = icmp slt i64 %i, %high
  br i1 %more, label %inside, label %leave
inside:
  %run = sdiv i64 %i, %within
  %product = srem i64 %i, %within
  %a.run = mul i64 %run, %a.outer
  %a.product = mul i64 %product, %a.inner
  %a.behind = add i64 %a.run, %a.product
  %b.run = mul i64 %run, %b.outer
  %b.product = mul i64 %product, %b.inner
  %b.behind = add i64 %b.run, %b.product
  %c.run = mul i64 %run, %c.outer
  %c.product = mul i64 %product, %c.inner
  %c.behind = add i64 %c.run, %c.product
  %a.i = getelementptr i8, ptr %a, i64 %a.behind
  %b.i = getelementptr i8, ptr %b, i64 %b.behind
  %c.i = getelementptr i8, ptr %c, i64 %c.behind
  call void %routine(ptr %a.letter, ptr %b.letter, ptr %n, ptr %m, ptr %k, ptr %alpha, ptr %a.i, ptr %a.leading,
                     ptr %b.i, ptr %b.leading, ptr %beta, ptr %c.i, ptr %c.leading)
  %next = add i64 %i, 1
  br label %head
leave:
  ret void
}

%context = type { ptr, ptr, i32 }

define i32 @tg_step.fork(ptr %words, ptr %pointers) noinline optnone {
  %context = alloca %context
  store ptr %words, ptr %context
  %pointers.at = getelementptr %context, ptr %context, i32 0, i32 1
  store ptr %pointers, ptr %pointers.at
  %status.at = getelementptr %context, ptr %context, i32 0, i32 2
  store i32 0, ptr %status.at
  %each.at = getelementptr i64, ptr %words, i64 1
  %each = load ptr, ptr %each.at
  %chunks = call i64 @word(ptr %words, i64 2)
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
  %kernel = load ptr, ptr %words
  %rows = call i64 @word(ptr %words, i64 3)
  %total = call i64 @word(ptr %words, i64 4)
  %count = call i64 @word(ptr %words, i64 5)
  %partials = call i64 @word(ptr %words, i64 6)
  %first = getelementptr i64, ptr %words, i64 7
  %four = mul i64 %partials, 4
  %given = getelementptr i64, ptr %first, i64 %four
  %own = alloca i64, i64 %count
  %size = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %given, i64 %size, i1 false)
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
  %four.p = mul i64 %p, 4
  %record = getelementptr i64, ptr %first, i64 %four.p
  %number = load i64, ptr %record
  %index = call i64 @word(ptr %record, i64 1)
  %begin = call i64 @word(ptr %record, i64 2)
  %bytes = call i64 @word(ptr %record, i64 3)
  %skipped = mul i64 %chunk, %bytes
  %behind = add i64 %begin, %skipped
  %index.at = getelementptr i64, ptr %own, i64 %number
  store i64 %index, ptr %index.at
  %behind.at = getelementptr i64, ptr %index.at, i64 1
  store i64 %behind, ptr %behind.at
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
  %out = call ptr @place(ptr %words, i64 0, ptr %pointers)
  %partial = call ptr @place(ptr %words, i64 2, ptr %pointers)
  %size = call i64 @word(ptr %words, i64 4)
  %chunks = call i64 @word(ptr %words, i64 5)
  %combiner.at = getelementptr i64, ptr %words, i64 6
  %combiner = load ptr, ptr %combiner.at
  call void %combiner(ptr %out, ptr %partial, i64 %size, i64 %chunks)
  ret i32 0
}
