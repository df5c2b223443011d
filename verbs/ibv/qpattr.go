//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// everyAttr is the mask of all attributes.
const everyAttr = verbs.QPAttrDestQPN<<1 - 1

// Modify changes attributes.
func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	return verb(q, "modify_qp", func() error {
		in, err := attrTo(&attr)
		if err != nil {
			return err
		}
		return q.modify(&in, C.int(mask))
	})
}

// notAccepting returns ErrBusy while a connection is being accepted. Linux's iWARP cannot cancel
// that: rdma_destroy_id blocks until the peer has sent data, and the kernel panics (6.1, 6.12) if
// the queue pair fails or is destroyed before.
func (q *qp) notAccepting() error {
	if q.accepting.Load() {
		return fmt.Errorf("%w: a connection is being accepted with it, which the kernel cannot take back: wait for the peer", verbs.ErrBusy)
	}
	return nil
}

// modify calls ibv_modify_qp. life is held for reading.
func (q *qp) modify(a *C.struct_ibv_qp_attr, mask C.int) error {
	if mask&C.IBV_QP_STATE != 0 {
		if err := q.notAccepting(); err != nil {
			return err
		}
	}
	err := shimError(C.shim_modify_qp(q.c, a, mask))
	if err == nil && mask&C.IBV_QP_STATE != 0 {
		q.setState.Store(uint32(a.qp_state))
	}
	return err
}

// qpState returns the state of the queue pair. Under iWARP it is the last state that we set, because
// siw before Linux 6.1 does not report it.
func (q *qp) qpState() (verbs.QPState, error) {
	if q.ctx.info.Transport == verbs.TransportIWARP {
		return verbs.QPState(q.setState.Load()), nil
	}
	var a C.struct_ibv_qp_attr
	err := shimError(C.shim_query_qp(q.c, &a, C.IBV_QP_STATE))
	return verbs.QPState(a.qp_state), err
}

// Query returns all attributes.
func (q *qp) Query() (attr verbs.QPAttr, err error) {
	err = verb(q, "query_qp", func() error {
		var a C.struct_ibv_qp_attr
		err := shimError(C.shim_query_qp(q.c, &a, C.int(everyAttr)))
		if err == nil {
			attr = attrFrom(&a)
		}
		return err
	})
	return attr, err
}

// attrTo and attrFrom translate the attributes of a queue pair.
func attrTo(a *verbs.QPAttr) (c C.struct_ibv_qp_attr, err error) {
	if c.cap, err = capsTo(a.Caps); err != nil {
		return c, err
	}
	c.qp_state, c.cur_qp_state = uint32(a.State), uint32(a.CurState)
	c.path_mtu, c.path_mig_state = uint32(a.PathMTU), uint32(a.PathMigState)
	c.qkey, c.dest_qp_num = C.uint32_t(a.QKey), C.uint32_t(a.DestQPN)
	c.rq_psn, c.sq_psn = C.uint32_t(a.RQPSN), C.uint32_t(a.SQPSN)
	c.qp_access_flags = C.uint(a.Access)
	c.ah_attr, c.alt_ah_attr = addressTo(a.AH), addressTo(a.AltAH)
	c.pkey_index, c.alt_pkey_index = C.uint16_t(a.PKeyIndex), C.uint16_t(a.AltPKeyIndex)
	if a.EnSQDAsyncNotify {
		c.en_sqd_async_notify = 1
	}
	c.max_rd_atomic, c.max_dest_rd_atomic = C.uint8_t(a.MaxRdAtomic), C.uint8_t(a.MaxDestRdAtomic)
	c.min_rnr_timer, c.timeout = C.uint8_t(a.MinRNRTimer), C.uint8_t(a.Timeout)
	c.retry_cnt, c.rnr_retry = C.uint8_t(a.RetryCnt), C.uint8_t(a.RNRRetry)
	c.port_num, c.alt_port_num, c.alt_timeout = C.uint8_t(a.Port), C.uint8_t(a.AltPort), C.uint8_t(a.AltTimeout)
	return c, nil
}

func attrFrom(c *C.struct_ibv_qp_attr) verbs.QPAttr {
	return verbs.QPAttr{
		State: verbs.QPState(c.qp_state), CurState: verbs.QPState(c.cur_qp_state),
		PathMTU: verbs.MTU(c.path_mtu), PathMigState: verbs.MigState(c.path_mig_state),
		QKey: uint32(c.qkey), RQPSN: uint32(c.rq_psn), SQPSN: uint32(c.sq_psn), DestQPN: verbs.QPN(c.dest_qp_num),
		Access: verbs.Access(c.qp_access_flags),
		Caps: verbs.QPCaps{
			MaxSendWR: int(c.cap.max_send_wr), MaxRecvWR: int(c.cap.max_recv_wr), MaxSendSGE: int(c.cap.max_send_sge),
			MaxRecvSGE: int(c.cap.max_recv_sge), MaxInline: int(c.cap.max_inline_data),
		},
		AH: addressFrom(&c.ah_attr), AltAH: addressFrom(&c.alt_ah_attr),
		PKeyIndex: uint16(c.pkey_index), AltPKeyIndex: uint16(c.alt_pkey_index),
		EnSQDAsyncNotify: c.en_sqd_async_notify != 0, SQDraining: c.sq_draining != 0,
		MaxRdAtomic: uint8(c.max_rd_atomic), MaxDestRdAtomic: uint8(c.max_dest_rd_atomic),
		MinRNRTimer: uint8(c.min_rnr_timer), Port: uint8(c.port_num), Timeout: uint8(c.timeout),
		RetryCnt: uint8(c.retry_cnt), RNRRetry: uint8(c.rnr_retry), AltPort: uint8(c.alt_port_num), AltTimeout: uint8(c.alt_timeout),
	}
}
