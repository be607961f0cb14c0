/* The engine of the C library, as one unit: what a job without Python needs, hidden in libpyshmem.so. The parts are
 * those of module.c, without python/. */
#define PYSHMEM_UNIT

/* nobody opens far PEs here, so gcc knows that `far` is NULL, and warns of accesses that are never made */
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include "base/combine.c"
#include "base/counts.c"
#include "base/host.c"
#include "base/report.c"
#include "base/spin.c"
#include "base/thread.c"
#include "base/word.c"

#include "trace/carried.c"
#include "trace/file.c"

#include "gpu/launch.c"

#include "far/batch.c"
#include "far/calls.c"
#include "far/carrier_fabric.c"
#include "far/carrier_tcp.c"
#include "far/execute.c"
#include "far/execute_gpu.c"
#include "far/fabric.c"
#include "far/fabric_gpu.c"
#include "far/fabric_open.c"
#include "far/far.c"
#include "far/greeting.c"
#include "far/help.c"
#include "far/libfabric.c"
#include "far/life.c"
#include "far/link.c"
#include "far/proxy.c"
#include "far/rma.c"
#include "far/server.c"
#include "far/session.c"

#include "team/barrier.c"
#include "team/broken.c"
#include "team/collectives.c"
#include "team/differences.c"
#include "team/engine.c"
#include "team/library.c"
#include "team/reductions.c"
#include "team/refusal.c"
#include "team/streamed.c"
#include "team/team.c"
#include "team/wait.c"
