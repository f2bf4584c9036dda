; One word, @state, decides who may touch a region: (epoch << 17) | (closed << 16) | active workers. The
; caller opens a region by a new epoch, and closes it before it waits for the active workers. A worker joins
; by compare-and-swap on the whole word. A worker that wakes late can therefore neither join a region that is
; over, nor read the description of a region (@task to @control) while the next caller writes it.
;
; Sleep is Dekker's protocol: the sleeper (@await) announces itself, then looks at @state; the waker changes
; @state, then (@wake) looks for sleepers. All accesses are sequentially consistent, so one thread sees the other.
; The waker passes through the mutex, which a sleeper holds from its announcement until it waits.
;
; A spinning thread yields now and then, because the system may run it on the CPU of the thread that it waits for.
; Words that several threads write sit 128 bytes apart: a cache line, or the pair that x86 prefetches together.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)

@mutex = internal global [128 x i8] zeroinitializer, align 128
@work = internal global [128 x i8] zeroinitializer, align 128     ; condition: a region was opened
@over = internal global [128 x i8] zeroinitializer, align 128     ; condition: the last active worker left
@state = internal global [16 x i64] zeroinitializer, align 128
@next = internal global [16 x i64] zeroinitializer, align 128     ; the chunk to hand out next
@busy = internal global [16 x i64] zeroinitializer, align 128     ; a caller owns the pool
@sleepers = internal global [16 x i64] zeroinitializer, align 128 ; workers that sleep on @work
@waiting = internal global [16 x i64] zeroinitializer, align 128  ; the caller sleeps on @over
@handles = internal global [1024 x ptr] zeroinitializer           ; of the workers; guarded by @busy
@limit = internal global i64 1, align 128                         ; threads in a region, the caller included
@started = internal global i64 0                                  ; workers that exist; guarded by @busy
@task = internal global ptr null, align 128                       ; the region, from here on
@context = internal global ptr null
@chunks = internal global i64 0
@helpers = internal global i64 0                                  ; workers that may join
@control = internal global i64 0                                  ; the caller's floating-point control

; One iteration of a spin; true when the time is up. Most iterations only pause: cheaper than to ask the system.
define internal i1 @spin(i64 %iteration, i64 %deadline) {
  call void @pause()
  %sixteenth = and i64 %iteration, 15
  %quick = icmp ne i64 %sixteenth, 0
  br i1 %quick, label %not_yet, label %read_clock
not_yet:
  ret i1 false
read_clock:
  %yielded = call i32 @sched_yield()
  %time = call i64 @now()
  %expired = icmp sgt i64 %time, %deadline
  ret i1 %expired
}

; True once @state has a region open that is not the worker's last, %last_epoch.
define internal i1 @is_new(i64 %state, i64 %last_epoch) {
  %closed = and i64 %state, 65536
  %open = icmp eq i64 %closed, 0
  %epoch = lshr i64 %state, 17
  %is_other_epoch = icmp ne i64 %epoch, %last_epoch
  %new = and i1 %open, %is_other_epoch
  ret i1 %new
}

define internal i1 @is_empty(i64 %state, i64 %unused) {
  %active = and i64 %state, 65535
  %empty = icmp eq i64 %active, 0
  ret i1 %empty
}

; Return a @state with %test(@state, %argument): spin first, then sleep on %condition, counted in %sleepers.
define internal i64 @await(ptr %test, i64 %argument, ptr %sleepers, ptr %condition) {
entry:
  %start = call i64 @now()
  %deadline = add i64 %start, $spin_time
  br label %poll
poll:
  %iteration = phi i64 [ 0, %entry ], [ %next_iteration, %pause ]
  %state = load atomic i64, ptr @state acquire, align 8
  %is_true = call i1 %test(i64 %state, i64 %argument)
  br i1 %is_true, label %done, label %pause
pause:
  %next_iteration = add i64 %iteration, 1
  %expired = call i1 @spin(i64 %next_iteration, i64 %deadline)
  br i1 %expired, label %sleep, label %poll
sleep:
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %others = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %state_now = load atomic i64, ptr @state seq_cst, align 8
  %is_true_now = call i1 %test(i64 %state_now, i64 %argument)
  br i1 %is_true_now, label %wake, label %wait
wait:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr @mutex)
  br label %check
wake:
  %rest = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %done
done:
  %answer = phi i64 [ %state, %poll ], [ %state_now, %wake ]
  ret i64 %answer
}

; Wake up to %most of the threads that sleep on %condition, counted in %sleepers.
define internal void @wake(ptr %sleepers, ptr %condition, i64 %most) {
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %count = call i64 @llvm.smin.i64(i64 %asleep, i64 %most)
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %pass, label %done
pass:
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %signal
signal:
  %left = phi i64 [ %count, %pass ], [ %rest, %signal ]
  %signalled = call i32 @pthread_cond_signal(ptr %condition)
  %rest = sub i64 %left, 1
  %more = icmp sgt i64 %rest, 0
  br i1 %more, label %signal, label %done
done:
  ret void
}

; The life of a worker.
define internal ptr @worker(ptr %number) {
entry:
  %worker = ptrtoint ptr %number to i64
  br label %await
await:
  %last_epoch = phi i64 [ -1, %entry ], [ %epoch, %await ], [ %last_epoch, %join ], [ %epoch, %help ], [ %epoch, %wake_caller ]
  %state = call i64 @await(ptr @is_new, i64 %last_epoch, ptr @sleepers, ptr @work)
  call void @note_cpu(i64 %worker)
  %epoch = lshr i64 %state, 17
  %active = and i64 %state, 65535
  %helpers = load atomic i64, ptr @helpers monotonic, align 8
  %wanted = icmp slt i64 %active, %helpers
  br i1 %wanted, label %join, label %await
join:
  %one_more = add i64 %state, 1
  %swap = cmpxchg ptr @state, i64 %state, i64 %one_more acq_rel acquire
  %joined = extractvalue { i64, i1 } %swap, 1
  br i1 %joined, label %help, label %await
help:
  %control = load i64, ptr @control
  call void @set_control(i64 %control)
  %task = load ptr, ptr @task
  %context = load ptr, ptr @context
  %chunks = load i64, ptr @chunks
  call void @run(ptr @next, ptr %task, ptr %context, i64 %chunks)
  %before = atomicrmw sub ptr @state, i64 1 seq_cst
  %active_before = and i64 %before, 65535
  %last = icmp eq i64 %active_before, 1
  br i1 %last, label %wake_caller, label %await
wake_caller:
  call void @wake(ptr @waiting, ptr @over, i64 1)
  br label %await
}

; Make sure that %helpers workers exist. The owner of the pool calls it.
define internal void @start_workers(i64 %helpers) {
  br label %check
check:
  %started = load i64, ptr @started
  %missing = icmp slt i64 %started, %helpers
  br i1 %missing, label %create, label %done
create:
  %thread = getelementptr ptr, ptr @handles, i64 %started
  %number = inttoptr i64 %started to ptr
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %number)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %limit_threads, label %created
created:
  %handle = load ptr, ptr %thread
  %detached = call i32 @pthread_detach(ptr %handle)
  %more = add i64 %started, 1
  store i64 %more, ptr @started
  br label %check
limit_threads:                                             ; the system has no more threads: ask for no more
  %threads = add i64 %started, 1
  store atomic i64 %threads, ptr @limit monotonic, align 8
  br label %done
done:
  ret void
}

define void @parallel_for(ptr %task, ptr %context, i64 %chunks) {
  %limit = load atomic i64, ptr @limit monotonic, align 8
  %usable = call i64 @llvm.smin.i64(i64 %limit, i64 %chunks)
  %helpers = sub i64 %usable, 1
  %has_helpers = icmp sgt i64 %helpers, 0
  br i1 %has_helpers, label %acquire, label %serial
acquire:
  %swap = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic
  %owned = extractvalue { i64, i1 } %swap, 1
  br i1 %owned, label %open, label %serial
open:
  call void @start_workers(i64 %helpers)
  call void @keep_apart(i64 %helpers)
  %control = call i64 @get_control()
  store ptr %task, ptr @task
  store ptr %context, ptr @context
  store i64 %chunks, ptr @chunks
  store i64 %control, ptr @control
  store atomic i64 %helpers, ptr @helpers monotonic, align 8
  store atomic i64 0, ptr @next monotonic, align 8
  %old = load atomic i64, ptr @state monotonic, align 8
  %full = or i64 %old, 131071
  %fresh = add i64 %full, 1                          ; the next epoch, open, no worker active
  store atomic i64 %fresh, ptr @state seq_cst, align 8
  call void @wake(ptr @sleepers, ptr @work, i64 %helpers)
  call void @run(ptr @next, ptr %task, ptr %context, i64 %chunks)
  %closed = atomicrmw or ptr @state, i64 65536 acq_rel
  %empty = call i64 @await(ptr @is_empty, i64 0, ptr @waiting, ptr @over)
  store atomic i64 0, ptr @busy release, align 8
  ret void
serial:
  %counter = alloca i64
  store i64 0, ptr %counter
  call void @run(ptr %counter, ptr %task, ptr %context, i64 %chunks)
  ret void
}

define i64 @get_limit() {
  %limit = load atomic i64, ptr @limit monotonic, align 8
  ret i64 %limit
}

define void @set_limit(i64 %threads) {
  store atomic i64 %threads, ptr @limit monotonic, align 8
  ret void
}

; Before the first use and in a forked child: no workers, no region, and locks as new.
define void @reset() {
  %mutex = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %work = call i32 @pthread_cond_init(ptr @work, ptr null)
  %over = call i32 @pthread_cond_init(ptr @over, ptr null)
  store i64 65536, ptr @state
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 0, ptr @waiting
  store i64 0, ptr @started
  ret void
}
