; Set the CPU affinity of the pool's workers: never the CPU of the calling thread.
;
; A thread that wakes another continues to run itself. Schedulers that pack threads may place both on one CPU, and the
; worker then waits until the caller's time slice ends, longer than a short region takes. Each worker therefore notes
; the CPU on which it wakes. A caller that opens a region removes its own CPU from the affinity set of the workers
; that last woke there. They may run on all other CPUs, and a user's affinity set for the caller is respected. If
; there are fewer CPUs than threads, the affinity is left to the system.

declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(ptr, i64, ptr)
declare <16 x i64> @llvm.ctpop.v16i64(<16 x i64>)
declare i64 @llvm.vector.reduce.add.v16i64(<16 x i64>)

@cpus = internal global [1024 x i32] zeroinitializer              ; where each worker woke up, and one more; or 0

define internal i32 @cpu() {
  %number = call i32 @sched_getcpu()
  %known = icmp ult i32 %number, 1024                ; a set below has 1,024 bits
  %next = add i32 %number, 1
  %cpu = select i1 %known, i32 %next, i32 0
  ret i32 %cpu
}

; Called by worker %worker.
define internal void @note_cpu(i64 %worker) {
  %place = getelementptr i32, ptr @cpus, i64 %worker
  %cpu = call i32 @cpu()
  %before = load atomic i32, ptr %place monotonic, align 4
  %same = icmp eq i32 %cpu, %before
  br i1 %same, label %done, label %note
note:
  store atomic i32 %cpu, ptr %place monotonic, align 4
  br label %done
done:
  ret void
}

; Take the CPU of the calling thread from the sets of those of the first %helpers workers that woke up there.
define internal void @keep_apart(i64 %helpers) {
entry:
  %set = alloca [16 x i64], align 8
  %cpu = call i32 @cpu()
  %started = load i64, ptr @started
  %workers = call i64 @llvm.smin.i64(i64 %started, i64 %helpers)
  %any = icmp sgt i64 %workers, 0
  %known = icmp ne i32 %cpu, 0
  %possible = and i1 %any, %known
  br i1 %possible, label %inspect, label %done
inspect:
  %worker = phi i64 [ 0, %entry ], [ %next, %next_worker ]
  %place = getelementptr i32, ptr @cpus, i64 %worker
  %cpu_of_worker = load atomic i32, ptr %place monotonic, align 4
  %same_cpu = icmp eq i32 %cpu_of_worker, %cpu
  br i1 %same_cpu, label %read_set, label %next_worker
next_worker:
  %next = add i64 %worker, 1
  %more = icmp slt i64 %next, %workers
  br i1 %more, label %inspect, label %done
read_set:
  store <16 x i64> zeroinitializer, ptr %set, align 8
  %status = call i32 @sched_getaffinity(i32 0, i64 128, ptr %set)
  %bits = load <16 x i64>, ptr %set, align 8
  %counts = call <16 x i64> @llvm.ctpop.v16i64(<16 x i64> %bits)
  %count = call i64 @llvm.vector.reduce.add.v16i64(<16 x i64> %counts)
  %enough = icmp sgt i64 %count, %workers
  br i1 %enough, label %remove_cpu, label %done
remove_cpu:
  %index = sub i32 %cpu, 1
  %word = lshr i32 %index, 6
  %word_at = getelementptr i64, ptr %set, i32 %word
  %low = and i32 %index, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %all = load i64, ptr %word_at, align 8
  %rest = and i64 %all, %others
  store i64 %rest, ptr %word_at, align 8
  %slot = getelementptr ptr, ptr @handles, i64 %worker
  %handle = load ptr, ptr %slot
  %set_status = call i32 @pthread_setaffinity_np(ptr %handle, i64 128, ptr %set)
  store atomic i32 0, ptr %place monotonic, align 4
  br label %next_worker
done:
  ret void
}
