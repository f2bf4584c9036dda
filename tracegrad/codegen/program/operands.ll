declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; The operand at word %at of an instruction: the address of a location, a word, an address.
define internal ptr @place(ptr %words, i64 %at, ptr %pointers) alwaysinline {
  %index.at = getelementptr i64, ptr %words, i64 %at
  %offset.at = getelementptr i64, ptr %index.at, i64 1
  %index = load i64, ptr %index.at
  %offset = load i64, ptr %offset.at
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %index
  %pointer = load ptr, ptr %pointer.at
  %place = getelementptr i8, ptr %pointer, i64 %offset
  ret ptr %place
}

define internal i64 @word(ptr %words, i64 %at) alwaysinline {
  %word.at = getelementptr i64, ptr %words, i64 %at
  %word = load i64, ptr %word.at
  ret i64 %word
}

define internal ptr @address(ptr %words, i64 %at) alwaysinline {
  %address.at = getelementptr i64, ptr %words, i64 %at
  %address = load ptr, ptr %address.at
  ret ptr %address
}
