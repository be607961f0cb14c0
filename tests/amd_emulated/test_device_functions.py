"""The tests of the device functions, as every PE runs them interpreted or on a GPU, on emulated AMD GPUs."""

import importlib

CHAPTERS = (
    "rma", "tiles", "tile_kinds", "strided", "amo", "nbi", "signal", "wait", "wait_many", "ordering", "kernels",
    "gluon", "partitioned",
)  # fmt: skip
# The first three are stopped by the compiler, so that nothing runs: the first should be, the others should not. The fourth
# gives scratch on a heap that is the CPU's here. The next two, a reduction over lanes each, crash inside the emulator, which
# has not the conversions of the one after them. Instructions that the emulator has not compiled yet, it compiles in one thread alone.
LEFT_OUT = (
    "test_an_unknown_sem_or_scope_is_an_error",
    "test_a_mask_may_be_one_python_bool",
    "test_ctx_may_be_part_of_a_tuple",
    "test_scratch_of_the_program_takes_a_large_tile_in_one_turn",
    "test_test_says_what_the_comparison_says",
    "test_a_negative_value_meets_an_unsigned_word_as_in_c",
    "test_floats_of_eight_bits_are_combined_in_float32_and_rounded_once",
    "test_a_kernel_may_be_launched_from_another_thread",
)

for _chapter in CHAPTERS:
    for _name, _each in vars(importlib.import_module("test_device_" + _chapter)).items():
        if _name.startswith("test_") and _name not in LEFT_OUT:
            globals()[_name.replace("test_", f"test_{_chapter}_", 1)] = _each
