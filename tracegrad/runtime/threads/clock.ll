; Nanoseconds of a monotonic clock.
declare i32 @clock_gettime(i32, ptr)

define internal i64 @now() {
  %time = alloca [2 x i64]                           ; seconds and nanoseconds: struct timespec
  %status = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %fraction = getelementptr i64, ptr %time, i32 1
  %nanoseconds = load i64, ptr %fraction
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}
