// The part of shim.h that is about connections.

#ifndef FABRICTEST_IBV_SHIMCM_H
#define FABRICTEST_IBV_SHIMCM_H

#include <rdma/rdma_cma.h>

SHIM_1(rdma_disconnect, rdma_cm_id)
SHIM_1(rdma_establish, rdma_cm_id)

static inline int shim_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	return SHIM_CALL(rdma_init_qp_attr(id, a, mask));
}

static inline int shim_resolve_route(struct rdma_cm_id *id, int ms) { return SHIM_CALL(rdma_resolve_route(id, ms)); }
static inline int shim_listen(struct rdma_cm_id *id, int backlog) { return SHIM_CALL(rdma_listen(id, backlog)); }

static inline void shim_sockaddr(struct sockaddr_storage *out, const uint8_t *ip, int len, uint16_t port, uint32_t scope)
{
	memset(out, 0, sizeof *out);
	if (len == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)out;
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, ip, 4);
	} else {
		struct sockaddr_in6 *in = (struct sockaddr_in6 *)out;
		in->sin6_family = AF_INET6;
		in->sin6_port = htons(port);
		in->sin6_scope_id = scope;
		memcpy(&in->sin6_addr, ip, 16);
	}
}

// shim_address returns the length of the IP address in sa: 4, 16, or 0 if there is none.
static inline int shim_address(const struct sockaddr *sa, uint8_t *ip, uint16_t *port)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
		memcpy(ip, &in->sin_addr, 4);
		*port = ntohs(in->sin_port);
		return 4;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)sa;
		memcpy(ip, &in->sin6_addr, 16);
		*port = ntohs(in->sin6_port);
		return 16;
	}
	return 0;
}

static inline int shim_resolve_addr(struct rdma_cm_id *id, struct sockaddr_storage *dst, int timeout_ms)
{
	return SHIM_CALL(rdma_resolve_addr(id, NULL, (struct sockaddr *)dst, timeout_ms));
}

static inline int shim_bind_addr(struct rdma_cm_id *id, struct sockaddr_storage *addr)
{
	return SHIM_CALL(rdma_bind_addr(id, (struct sockaddr *)addr));
}

static inline const char *shim_id_device(struct rdma_cm_id *id)
{
	return id->verbs ? ibv_get_device_name(id->verbs->device) : NULL;
}

// shim_cm_param is what goes with rdma_connect and rdma_accept; private data is Go's.
struct shim_cm_param {
	uint32_t qp_num;
	uint8_t srq;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t private_data_len;
	uint8_t private_data[255];
};

static inline int shim_connect_or_accept(struct rdma_cm_id *id, const struct shim_cm_param *p, int accept)
{
	struct rdma_conn_param c = {
		.private_data = p->private_data,
		.private_data_len = p->private_data_len,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.flow_control = p->flow_control,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry_count,
		.srq = p->srq,
		.qp_num = p->qp_num,
	};
	return SHIM_CALL(accept ? rdma_accept(id, &c) : rdma_connect(id, &c));
}

static inline int shim_reject(struct rdma_cm_id *id, const struct shim_cm_param *p)
{
	return SHIM_CALL(rdma_reject(id, p->private_data, p->private_data_len));
}

struct shim_cm_event {
	struct rdma_cm_event *raw; // to be acknowledged
	struct rdma_cm_id *id;
	struct rdma_cm_id *listener;
	uint32_t type;
	int status;
	struct shim_cm_param param;
	struct ibv_ah_attr ah;
	uint32_t qkey;
};

// shim_cm_event_next takes the next event off a channel; who calls acknowledges it.
static inline int shim_cm_event_next(struct rdma_event_channel *ch, struct shim_cm_event *out)
{
	struct rdma_cm_event *e;
	if (rdma_get_cm_event(ch, &e))
		return -1;
	memset(out, 0, sizeof *out);
	out->raw = e;
	out->id = e->id;
	out->listener = e->listen_id;
	out->type = e->event;
	out->status = e->status;
	const void *data;
	if (e->id->ps == RDMA_PS_UDP) {
		out->ah = e->param.ud.ah_attr;
		out->qkey = e->param.ud.qkey;
		out->param.qp_num = e->param.ud.qp_num;
		out->param.private_data_len = e->param.ud.private_data_len;
		data = e->param.ud.private_data;
	} else {
		out->param.qp_num = e->param.conn.qp_num;
		out->param.srq = e->param.conn.srq;
		out->param.responder_resources = e->param.conn.responder_resources;
		out->param.initiator_depth = e->param.conn.initiator_depth;
		out->param.flow_control = e->param.conn.flow_control;
		out->param.retry_count = e->param.conn.retry_count;
		out->param.rnr_retry_count = e->param.conn.rnr_retry_count;
		out->param.private_data_len = e->param.conn.private_data_len;
		data = e->param.conn.private_data;
	}
	if (data && out->param.private_data_len)
		memcpy(out->param.private_data, data, out->param.private_data_len);
	else
		out->param.private_data_len = 0;
	return 0;
}

#endif
