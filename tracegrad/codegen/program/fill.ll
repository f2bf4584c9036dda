define i32 @"$name"(ptr %words, ptr %pointers) {
entry:
  %out = call ptr @place(ptr %words, i64 $fill.target, ptr %pointers)
  %value.at = getelementptr i64, ptr %words, i64 $fill.value
  %value = load $type, ptr %value.at
  %count = call i64 @word(ptr %words, i64 $fill.count)
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %inside ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %inside, label %leave
inside:
  %element = getelementptr $type, ptr %out, i64 %i
  store $type %value, ptr %element
  %next = add i64 %i, 1
  br label %head
leave:
  ret i32 0
}
