/* Symmetric static data: the writable segments of the program, and of the libraries that PYSHMEM_SYMMETRIC_LIBS names.
 *
 * The heap has a block for them. At init their contents are copied there, and the pages of the block are mapped over
 * the segments: the program's variables stay where they are, and other PEs reach them as a part of the heap. The
 * addresses of segments may differ between PEs; their sizes may not. */
#pragma once
#include <stdint.h>

#include "../base/internal.h"

INTERNAL uint64_t find_statics(int program);
INTERNAL void share_statics(void);
INTERNAL void unshare_statics(void);
