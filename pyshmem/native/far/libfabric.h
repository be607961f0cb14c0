/* What pyshmem uses of libfabric's binary interface, so that its headers need not be there where pyshmem is built.
 *
 * The layouts are those of version 1.3 of the interface (FABRIC_1.3), which every libfabric from 1.9 on offers. The
 * names are libfabric's; fields and functions that are not used are `unused`. tests/jobs/test_libfabric.py compares the
 * layouts with the headers where there are any. The library is loaded when a program asks for it. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "../base/internal.h"

#define FI_MSG (UINT64_C(1) << 1)
#define FI_RMA (UINT64_C(1) << 2)
#define FI_ORDER_SAW (UINT64_C(1) << 7)
#define FI_ORDER_SAS (UINT64_C(1) << 8)
#define FI_READ (UINT64_C(1) << 8)
#define FI_WRITE (UINT64_C(1) << 9)
#define FI_RECV (UINT64_C(1) << 10)
#define FI_SEND (UINT64_C(1) << 11)
#define FI_TRANSMIT FI_SEND
#define FI_REMOTE_READ (UINT64_C(1) << 12)
#define FI_REMOTE_WRITE (UINT64_C(1) << 13)
#define FI_TRANSMIT_COMPLETE (UINT64_C(1) << 27)
#define FI_DELIVERY_COMPLETE (UINT64_C(1) << 28)
#define FI_HMEM (UINT64_C(1) << 47)
#define FI_CONTEXT2 (UINT64_C(1) << 52)
#define FI_SOURCE (UINT64_C(1) << 57)
#define FI_CONTEXT (UINT64_C(1) << 59)
enum {
    FI_MR_LOCAL = 1 << 2,
    FI_MR_VIRT_ADDR = 1 << 4,
    FI_MR_ALLOCATED = 1 << 5,
    FI_MR_PROV_KEY = 1 << 6,
    FI_MR_ENDPOINT = 1 << 9,
    FI_MR_HMEM = 1 << 10
};
enum { FI_EP_RDM = 3, FI_THREAD_SAFE = 1, FI_PROGRESS_AUTO = 1, FI_AV_TABLE = 2, FI_CQ_FORMAT_CONTEXT = 1 };
enum { FI_WAIT_NONE = 0, FI_WAIT_FD = 3, FI_GETWAIT = 5, FI_ENABLE = 6, FI_EAVAIL = 259 };
#define FI_ADDR_UNSPEC UINT64_MAX
#define FI_VERSION_1_14 ((UINT32_C(1) << 16) | 14)

struct fid {
    size_t fclass;
    void *context;
    struct {
        size_t size;
        int (*close)(struct fid *);
        int (*bind)(struct fid *, struct fid *, uint64_t flags);
        int (*control)(struct fid *, int command, void *);
    } *ops;
};
struct fi_tx_attr {
    uint64_t caps, mode, op_flags, msg_order, comp_order;
    size_t inject_size, size;
};
struct fi_rx_attr {
    uint64_t caps, mode, op_flags, msg_order, comp_order;
    size_t total_buffered_recv, size;
};
struct fi_ep_attr {
    int type;
    uint32_t protocol, protocol_version;
    size_t max_msg_size;
};
struct fi_domain_attr {
    void *domain;
    char *name;
    int threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode;
    size_t mr_key_size;
};
struct fi_fabric_attr {
    void *fabric;
    char *name, *prov_name;
};
struct fi_info {
    struct fi_info *next;
    uint64_t caps, mode;
    uint32_t addr_format;
    size_t src_addrlen, dest_addrlen;
    void *src_addr, *dest_addr, *handle;
    struct fi_tx_attr *tx_attr;
    struct fi_rx_attr *rx_attr;
    struct fi_ep_attr *ep_attr;
    struct fi_domain_attr *domain_attr;
    struct fi_fabric_attr *fabric_attr;
};
struct fi_cq_attr {
    size_t size;
    uint64_t flags;
    int format, wait_obj, signaling_vector, wait_cond;
    void *wait_set;
};
struct fi_cq_entry {
    void *op_context;
};
struct fi_cq_err_entry {
    void *op_context;
    uint64_t flags;
    size_t len;
    void *buf;
    uint64_t data, tag;
    size_t olen;
    int err, prov_errno;
    void *err_data;
    size_t err_data_size;
};
struct fi_av_attr {
    int type, rx_ctx_bits;
    size_t count, ep_per_node;
    const char *name;
    void *map_addr;
    uint64_t flags;
};
struct fi_mr_attr {
    const struct iovec *mr_iov;
    size_t iov_count;
    uint64_t access, offset, requested_key;
    void *context;
    size_t auth_key_size;
    uint8_t *auth_key;
    int iface;       /* the kind of memory */
    uint64_t device; /* its number, for CUDA */
};
struct fi_context2 {
    void *internal[8];
};
struct fi_msg {
    const struct iovec *msg_iov;
    void **desc;
    size_t iov_count;
    uint64_t addr;
    void *context;
    uint64_t data;
};
struct fid_mr {
    struct fid fid;
    void *mem_desc;
    uint64_t key;
};
struct fid_cq {
    struct fid fid;
    struct {
        size_t size;
        ssize_t (*read)(struct fid_cq *, void *, size_t count);
        void *unused;
        ssize_t (*readerr)(struct fid_cq *, struct fi_cq_err_entry *, uint64_t flags);
    } *ops;
};
struct fid_av {
    struct fid fid;
    struct {
        size_t size;
        int (*insert)(struct fid_av *, const void *, size_t count, uint64_t *address, uint64_t flags, void *);
    } *ops;
};
struct fid_ep {
    struct fid fid;
    void *ops;
    struct {
        size_t size;
        void *unused;
        int (*getname)(struct fid *, void *, size_t *bytes);
    } *cm;
    struct {
        size_t size;
        ssize_t (*recv)(struct fid_ep *, void *, size_t, void *desc, uint64_t from, void *);
        void *unused[4];
        ssize_t (*sendmsg)(struct fid_ep *, const struct fi_msg *, uint64_t flags);
        ssize_t (*inject)(struct fid_ep *, const void *, size_t, uint64_t to);
    } *msg;
    struct {
        size_t size;
        ssize_t (*read)(struct fid_ep *, void *, size_t, void *desc, uint64_t pe, uint64_t at, uint64_t key, void *);
        void *unused[2];
        ssize_t (*write)(struct fid_ep *, const void *, size_t, void *desc, uint64_t pe, uint64_t at, uint64_t key,
                         void *);
    } *rma;
};
struct fid_domain {
    struct fid fid;
    struct {
        size_t size;
        int (*av_open)(struct fid_domain *, struct fi_av_attr *, struct fid_av **, void *);
        int (*cq_open)(struct fid_domain *, struct fi_cq_attr *, struct fid_cq **, void *);
        int (*endpoint)(struct fid_domain *, struct fi_info *, struct fid_ep **, void *);
    } *ops;
    struct {
        size_t size;
        int (*reg)(struct fid *, const void *, size_t, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
                   struct fid_mr **, void *);
        void *unused;
        int (*regattr)(struct fid *, const struct fi_mr_attr *, uint64_t flags, struct fid_mr **);
    } *mr;
};
struct fid_fabric {
    struct fid fid;
    struct {
        size_t size;
        int (*domain)(struct fid_fabric *, struct fi_info *, struct fid_domain **, void *);
        void *unused[3];
        int (*trywait)(struct fid_fabric *, struct fid **, int count);
    } *ops;
};

typedef struct {
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
    void (*freeinfo)(struct fi_info *);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    uint32_t (*version)(void);
    const char *(*strerror)(int);
} libfabric_t;
GLOBAL libfabric_t libfabric;

INTERNAL int libfabric_load(const char *path);
