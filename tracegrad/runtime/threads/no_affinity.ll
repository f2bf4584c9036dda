; For systems without CPU affinity sets: affinity.ll without an effect.
define internal void @note_cpu(i64 %worker) { ret void }
define internal void @keep_apart(i64 %helpers) { ret void }
