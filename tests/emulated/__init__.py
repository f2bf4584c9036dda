"""The tests on 64-bit ARM, emulated by QEMU."""
