#!/bin/sh
# Builds the C module and the C library with gcc's address and undefined-behaviour sanitizers, in a copy of the package, and runs the tests that
# call it most. A fault ends its process and so the tests. Undefined behaviour is reported at once, address errors at the end.
# Run by `make test-sanitized`.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.venv/bin
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cp -r "$root/pyshmem" "$copy"
cp -r "$root/launch" "$copy/pyshmem/launch"
native=$copy/pyshmem/native/_native
include=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$copy/pyshmem/version.py")
library=$copy/pyshmem/capi/libpyshmem
build() {  # a copy of 0 bytes may have a null address, which nonnull-attribute would report as undefined
    gcc -shared -fPIC -std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=address,undefined -fno-sanitize=nonnull-attribute -fno-sanitize-recover=all \
        -fno-omit-frame-pointer -fno-strict-aliasing -ffp-contract=off "$@" || exit 1
}
build -I"$include" "$copy/pyshmem/native/module.c" -o "$native.abi3.so" -lm
build -DPYSHMEM_VERSION="\"$version\"" -fvisibility=hidden "$copy/pyshmem/native/shmem/libpyshmem.c" -o "$library.so" -Wl,-soname,libpyshmem.so -lpthread -ldl

sanitized() {  # PYTHONMALLOC: in Python's own pools the sanitizer cannot detect where an object ends
    env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so.6)" PYTHONMALLOC=malloc \
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:use_sigaltstack=0:log_path=$copy/fault" \
        UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH="$copy" "$@"
}

cd "$root/tests/jobs" || exit 1  # not in the root, from which Python would import the uninstrumented pyshmem
sanitized "$bin/python" -c "from pyshmem.native import _native; assert _native.__file__ == '$native.abi3.so'" || exit 1
status=0
sanitized "$bin/python" -m pytest test_native.py test_native_collectives.py test_kernel_calls.py test_amd_driver.py \
    test_service.py test_service_gpu.py test_far_waits.py test_held_puts.py test_fuzzed_service.py test_proxy.py test_fabric_order.py -q --capture=sys || status=1
sanitized "$bin/pyshmemrun" -n 2 c/fuzzed.py 7 3 || status=1
PYSHMEM_NODE_SIZE=1 PYSHMEM_FAR=tcp sanitized "$bin/pyshmemrun" -n 2 c/fuzzed.py 8 3 || status=1
cd ../pes && sanitized "$bin/pyshmemrun" -n 2 -m pytest . -q --capture=sys || status=1
for carrier in tcp fabric; do  # the fabric, of MPICH's libfabric, carries data and requests
    PYSHMEM_NODE_SIZE=1 PYSHMEM_FAR=$carrier PYSHMEM_FABRIC="tcp;ofi_rxm" PYSHMEM_AMO=$carrier \
        sanitized "$bin/pyshmemrun" -n 2 -m pytest test_far_routes.py -q --capture=sys || status=1
done
for fault in "$copy"/fault.*; do
    test -e "$fault" && cat "$fault" && status=1
done
exit $status
