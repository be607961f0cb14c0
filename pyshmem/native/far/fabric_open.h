/* Opening of a fabric: the provider, endpoints, registered memory and the addresses of the other PEs. */
#pragma once
#include "fabric.h"

INTERNAL int fabric_offers(const char *provider, const char *node, uint64_t order, int hmem, struct fi_info **found);
INTERNAL int fabric_open(fabric_t *f, const char *provider, const char *node, uint64_t order, int hmem,
                         const char **what);
INTERNAL int fabric_know(fabric_t *f, int pe, const char *address[2], uint64_t key, uint64_t base);
INTERNAL int fabric_serve(fabric_t *f);
INTERNAL void fabric_use(fabric_t *f, uint64_t least, int trial, int messaging);
INTERNAL void fabric_close(fabric_t *f);
INTERNAL void region_forget(region_t *r);
INTERNAL void regions_forget(fabric_t *f);
