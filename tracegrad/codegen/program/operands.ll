declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal ptr @place(ptr %words, i64 %at, ptr %pointers) alwaysinline {
  %index.at = getelementptr i64, ptr %words, i64 %at
  %behind.at = getelementptr i64, ptr %index.at, i64 1
  %index = load i64, ptr %index.at
  %behind = load i64, ptr %behind.at
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %index
  %pointer = load ptr, ptr %pointer.at
  %place = getelementptr i8, ptr %pointer, i64 %behind
  ret ptr %place
}

define internal i64 @word(ptr %words, i64 %at) alwaysinline {
  %word.at = getelementptr i64, ptr %words, i64 %at
  %word = load i64, ptr %word.at
  ret i64 %word
}
