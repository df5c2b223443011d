// The part of shim.h that posts work requests.

#ifndef FABRICTEST_IBV_SHIMPOST_H
#define FABRICTEST_IBV_SHIMPOST_H

// Go fills arrays of these, which live in C memory, and one call turns them
// into the lists that libibverbs wants.

struct shim_send {
	uint64_t wr_id;
	uint32_t opcode;
	uint32_t flags;
	uint32_t first_sge;
	uint32_t num_sge;
	uint32_t imm; // immediate data in host order, or the key to invalidate
	uint32_t rkey;
	uint64_t remote_addr;
	uint64_t compare_add;
	uint64_t swap;
	struct ibv_ah *ah;
	uint32_t remote_qpn;
	uint32_t remote_qkey;
	uint32_t remote_srqn;
	uint32_t mw_rkey;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	uint64_t bind_addr;
	uint64_t bind_length;
	uint32_t bind_access;
};

struct shim_recv {
	uint64_t wr_id;
	uint32_t first_sge;
	uint32_t num_sge;
};

static inline void shim_fill(struct ibv_send_wr *wr, const struct shim_send *in, struct ibv_sge *sge, int ud)
{
	memset(wr, 0, sizeof *wr);
	wr->wr_id = in->wr_id;
	wr->sg_list = sge + in->first_sge;
	wr->num_sge = in->num_sge;
	wr->opcode = in->opcode;
	wr->send_flags = in->flags;
	wr->qp_type.xrc.remote_srqn = in->remote_srqn;
	switch (in->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wr->imm_data = htonl(in->imm);
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		wr->invalidate_rkey = in->imm;
	}
	if (ud) { // whatever the operation: what UD has not got is for the device to refuse
		wr->wr.ud.ah = in->ah;
		wr->wr.ud.remote_qpn = in->remote_qpn;
		wr->wr.ud.remote_qkey = in->remote_qkey;
		return;
	}
	switch (in->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		wr->wr.rdma.remote_addr = in->remote_addr;
		wr->wr.rdma.rkey = in->rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = in->remote_addr;
		wr->wr.atomic.rkey = in->rkey;
		wr->wr.atomic.compare_add = in->compare_add;
		wr->wr.atomic.swap = in->swap;
		break;
	case IBV_WR_BIND_MW:
		wr->bind_mw.mw = in->mw;
		wr->bind_mw.rkey = in->mw_rkey;
		wr->bind_mw.bind_info.mr = in->mr;
		wr->bind_mw.bind_info.addr = in->bind_addr;
		wr->bind_mw.bind_info.length = in->bind_length;
		wr->bind_mw.bind_info.mw_access_flags = in->bind_access;
	}
}

// shim_post_send posts n requests and says how many were taken.
static inline int shim_post_send(struct ibv_qp *qp, const struct shim_send *in, struct ibv_send_wr *wr,
				 struct ibv_sge *sge, int n, int *posted)
{
	struct ibv_send_wr *bad = NULL;
	int ud = qp->qp_type == IBV_QPT_UD, err, i;
	for (i = 0; i < n; i++) {
		shim_fill(&wr[i], &in[i], sge, ud);
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	err = SHIM_CALL(ibv_post_send(qp, wr, &bad));
	*posted = !err ? n : bad ? (int)(bad - wr) : 0;
	return err;
}

// shim_atomic_write posts one atomic write, which only the newer interface has.
static inline int shim_atomic_write(struct ibv_qp_ex *qp, const struct shim_send *in, const void *word)
{
	ibv_wr_start(qp);
	qp->wr_id = in->wr_id;
	qp->wr_flags = in->flags & ~IBV_SEND_INLINE;
	ibv_wr_atomic_write(qp, in->rkey, in->remote_addr, word);
	return SHIM_CALL(ibv_wr_complete(qp));
}

static inline struct ibv_recv_wr *shim_recv_list(const struct shim_recv *in, struct ibv_recv_wr *wr,
						 struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		wr[i].wr_id = in[i].wr_id;
		wr[i].sg_list = sge + in[i].first_sge;
		wr[i].num_sge = in[i].num_sge;
		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
	}
	return wr;
}

static inline int shim_post_recv(struct ibv_qp *qp, struct ibv_srq *srq, const struct shim_recv *in,
				 struct ibv_recv_wr *wr, struct ibv_sge *sge, int n, int *posted)
{
	struct ibv_recv_wr *bad = NULL;
	shim_recv_list(in, wr, sge, n);
	int err = SHIM_CALL(srq ? ibv_post_srq_recv(srq, wr, &bad) : ibv_post_recv(qp, wr, &bad));
	*posted = !err ? n : bad ? (int)(bad - wr) : 0;
	return err;
}

static inline int shim_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, const struct shim_send *in)
{
	struct ibv_mw_bind bind = {
		.wr_id = in->wr_id,
		.send_flags = in->flags,
		.bind_info = { .mr = in->mr, .addr = in->bind_addr, .length = in->bind_length, .mw_access_flags = in->bind_access },
	};
	return SHIM_CALL(ibv_bind_mw(qp, mw, &bind));
}

static inline int shim_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) { return ibv_poll_cq(cq, n, wc); }

#endif
