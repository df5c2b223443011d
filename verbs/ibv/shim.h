// What cgo cannot say in Go: unions, macros, and calls whose result must be looked at
// before anything else happens. Nothing here decides anything.

#ifndef FABRICTEST_IBV_SHIM_H
#define FABRICTEST_IBV_SHIM_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <infiniband/verbs.h>

// shim_err makes one thing of the two ways to fail that the libraries have: to return an
// errno (which some drivers negate), or -1 with the reason in errno. What fails without a
// reason is an I/O error.
static inline int shim_err(int ret)
{
	if (ret == -1)
		ret = errno ? errno : EIO;
	return ret < 0 ? -ret : ret;
}

#define SHIM_CALL(call) (errno = 0, shim_err(call))
#define SHIM_1(verb, type) \
	static inline int shim_##verb(struct type *o) { return SHIM_CALL(verb(o)); }

SHIM_1(ibv_close_device, ibv_context)
SHIM_1(ibv_dealloc_pd, ibv_pd)
SHIM_1(ibv_dereg_mr, ibv_mr)
SHIM_1(ibv_dealloc_mw, ibv_mw)
SHIM_1(ibv_destroy_ah, ibv_ah)
SHIM_1(ibv_destroy_comp_channel, ibv_comp_channel)
SHIM_1(ibv_destroy_cq, ibv_cq)
SHIM_1(ibv_destroy_srq, ibv_srq)
SHIM_1(ibv_destroy_qp, ibv_qp)
SHIM_1(ibv_close_xrcd, ibv_xrcd)

static inline int shim_query_device(struct ibv_context *c, struct ibv_device_attr_ex *a)
{
	return SHIM_CALL(ibv_query_device_ex(c, NULL, a));
}

static inline int shim_query_gid(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e)
{
	return SHIM_CALL(ibv_query_gid_ex(c, port, index, e, 0));
}

static inline int shim_query_pkey(struct ibv_context *c, uint8_t port, int index, uint16_t *pkey)
{
	__be16 be = 0;
	int err = SHIM_CALL(ibv_query_pkey(c, port, index, &be));
	*pkey = ntohs(be);
	return err;
}

static inline int shim_req_notify_cq(struct ibv_cq *cq, int solicited) { return SHIM_CALL(ibv_req_notify_cq(cq, solicited)); }
static inline int shim_resize_cq(struct ibv_cq *cq, int n) { return SHIM_CALL(ibv_resize_cq(cq, n)); }
static inline int shim_query_srq(struct ibv_srq *s, struct ibv_srq_attr *a) { return SHIM_CALL(ibv_query_srq(s, a)); }
static inline int shim_srq_num(struct ibv_srq *s, uint32_t *n) { return SHIM_CALL(ibv_get_srq_num(s, n)); }

static inline int shim_modify_srq(struct ibv_srq *s, struct ibv_srq_attr *a, int mask)
{
	return SHIM_CALL(ibv_modify_srq(s, a, mask));
}

static inline int shim_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	return SHIM_CALL(ibv_modify_qp(qp, a, mask));
}

static inline int shim_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_init_attr init;
	return SHIM_CALL(ibv_query_qp(qp, a, mask, &init));
}

static inline int shim_attach_mcast(struct ibv_qp *qp, union ibv_gid *g) { return SHIM_CALL(ibv_attach_mcast(qp, g, 0)); }
static inline int shim_detach_mcast(struct ibv_qp *qp, union ibv_gid *g) { return SHIM_CALL(ibv_detach_mcast(qp, g, 0)); }

// Macros of libibverbs, as functions.

static inline struct ibv_device **shim_get_device_list(int *n) { return ibv_get_device_list(n); }

static inline int shim_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	memset(a, 0, sizeof *a);
	return SHIM_CALL(ibv_query_port(c, port, a));
}

// addr and iova are numbers: the memory is Go's, and pinned there.
static inline struct ibv_mr *shim_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t len, uint64_t iova, unsigned access)
{
	return ibv_reg_mr_iova2(pd, (void *)addr, len, iova, access);
}

static inline struct ibv_device *shim_device_at(struct ibv_device **list, int i) { return list[i]; }
static inline int shim_transport(struct ibv_device *d) { return d->transport_type; }
static inline uint64_t shim_guid(struct ibv_device *d) { return be64toh(ibv_get_device_guid(d)); }
static inline uint64_t shim_be64(__be64 v) { return be64toh(v); }

// Waiting.

static inline int shim_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

// shim_wait waits until fd or wake can be read: 1 for fd, 2 for wake, 0 if neither.
static inline int shim_wait(int fd, int wake, int timeout_ms)
{
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = wake, .events = POLLIN } };
	int n = poll(p, 2, timeout_ms);
	if (n < 0)
		return -1;
	if (p[1].revents)
		return 2;
	return p[0].revents ? 1 : 0;
}

static inline int shim_wake(int fd)
{
	uint64_t one = 1;
	return write(fd, &one, sizeof one) == sizeof one ? 0 : -1;
}

// shim_cq_event takes the next event off a channel and acknowledges it.
static inline int shim_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq)
{
	void *context;
	if (ibv_get_cq_event(ch, cq, &context))
		return -1;
	ibv_ack_cq_events(*cq, 1);
	return 0;
}

struct shim_async {
	uint32_t type;
	uint32_t port;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
};

// shim_async_event takes the next asynchronous event of a device and acknowledges it.
static inline int shim_async_event(struct ibv_context *c, struct shim_async *out)
{
	struct ibv_async_event e;
	if (ibv_get_async_event(c, &e))
		return -1;
	memset(out, 0, sizeof *out);
	out->type = e.event_type;
	switch (e.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->cq = e.element.cq;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->srq = e.element.srq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
		out->qp = e.element.qp;
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_WQ_FATAL:
		break;
	default:
		out->port = e.element.port_num;
	}
	ibv_ack_async_event(&e);
	return 0;
}

#include "shimpost.h"
#include "shimcm.h"

#endif
