#include "libfabric.h"

#include <dlfcn.h>
#include <string.h>

INTERNAL libfabric_t libfabric;

/* Returns whether the library is loaded. */
INTERNAL int libfabric_load(const char *path) {
    void *library = libfabric.getinfo ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *into;
        const char *name, *version;
    } wanted[] = {
        {&libfabric.freeinfo, "fi_freeinfo", "FABRIC_1.3"}, {&libfabric.dupinfo, "fi_dupinfo", "FABRIC_1.3"},
        {&libfabric.fabric, "fi_fabric", "FABRIC_1.1"},     {&libfabric.version, "fi_version", "FABRIC_1.0"},
        {&libfabric.strerror, "fi_strerror", "FABRIC_1.0"}, {&libfabric.getinfo, "fi_getinfo", "FABRIC_1.3"},
    };
    for (size_t i = 0; library && i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlvsym(library, wanted[i].name, wanted[i].version);
        if (!found) return 0;
        memcpy(wanted[i].into, &found, sizeof found);
    }
    return libfabric.getinfo != NULL;
}
