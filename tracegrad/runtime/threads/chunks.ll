; Take chunks from a counter and run them until none is left.
define internal void @run(ptr %counter, ptr %task, ptr %context, i64 %chunks) {
  br label %take
take:
  %chunk = atomicrmw add ptr %counter, i64 1 monotonic
  %left = icmp slt i64 %chunk, %chunks
  br i1 %left, label %call, label %done
call:
  call void %task(ptr %context, i64 %chunk)
  br label %take
done:
  ret void
}
