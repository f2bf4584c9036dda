; An instruction function whose operands are the address of a clock and the address of its result.
define i32 @tg_note(ptr %words, ptr %pointers) {
  %clock = load ptr, ptr %words
  %number.at = getelementptr i64, ptr %words, i64 1
  %number = load ptr, ptr %number.at
  %time = call i64 %clock()
  store i64 %time, ptr %number
  ret i32 0
}
