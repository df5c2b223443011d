//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// maxPrivateData is the maximum length of private data, an 8-bit field in rdma_conn_param.
const maxPrivateData = 255

// paramToC returns connection parameters as a shim_cm_param.
func paramToC(p verbs.ConnParam) (c C.struct_shim_cm_param, err error) {
	if len(p.PrivateData) > maxPrivateData {
		return c, fmt.Errorf("%w: %d bytes of private data, the limit of librdmacm is %d", verbs.ErrInvalid, len(p.PrivateData), maxPrivateData)
	}
	for i, b := range p.PrivateData {
		c.private_data[i] = C.uint8_t(b)
	}
	c.private_data_len = C.uint8_t(len(p.PrivateData))
	c.responder_resources, c.initiator_depth = C.uint8_t(p.ResponderResources), C.uint8_t(p.InitiatorDepth)
	c.retry_count, c.rnr_retry_count = C.uint8_t(p.RetryCount), C.uint8_t(p.RNRRetryCount)
	if p.FlowControl {
		c.flow_control = 1
	}
	return c, nil
}

// listener receives requests.
type listener struct {
	id     *cmID
	space  verbs.PortSpace
	addr   netip.AddrPort
	closed atomic.Bool
}

// Addr implements verbs.Listener.
func (l *listener) Addr() netip.AddrPort { return l.addr }

// GetRequest implements verbs.Listener. It skips requests whose identifier has been destroyed.
func (l *listener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	until := newDeadline(timeout)
	for {
		if l.closed.Load() {
			return nil, opError("get_cm_event", l.addr.String(), verbs.ErrClosed)
		}
		e, err := l.id.nextEvent(until)
		if err != nil {
			return nil, opError("get_cm_event", l.addr.String(), err)
		}
		if e.request == nil {
			continue // an address change or a removed device
		}
		r := &request{id: e.request, space: l.space, param: e.param}
		err = r.id.call(func() C.int {
			r.remote = addressOf(C.rdma_get_peer_addr(r.id.c))
			return 0
		})
		if err == nil {
			return r, nil
		}
	}
}

// Close implements verbs.Listener. It rejects requests that GetRequest has not returned.
func (l *listener) Close() error {
	if l.closed.Swap(true) {
		return opError("destroy_id", l.addr.String(), verbs.ErrClosed)
	}
	select {
	case <-l.id.destroyedCh:
		return opError("destroy_id", l.addr.String(), verbs.ErrClosed) // it was closed with its device
	default:
	}
	l.id.destroy()
	return nil
}

// request is a connection request.
type request struct {
	id       *cmID
	space    verbs.PortSpace
	param    verbs.ConnParam
	remote   netip.AddrPort
	answered atomic.Bool
}

// Remote implements verbs.ConnRequest.
func (r *request) Remote() netip.AddrPort { return r.remote }

// Param implements verbs.ConnRequest.
func (r *request) Param() verbs.ConnParam { return r.param }

// Accept implements verbs.ConnRequest. For a datagram service it only replies, and returns nil.
func (r *request) Accept(pair verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "accept"
	until := newDeadline(timeout)
	fail := func(err error) (verbs.Conn, error) { return nil, opError(op, r.remote.String(), err) }
	cmParam, err := paramToC(param)
	if err != nil {
		return fail(err)
	}
	if r.space == verbs.PortSpaceUDP {
		err := r.acceptUD(pair, &cmParam)
		if r.answered.Load() { // else the caller may still accept or reject the request
			r.id.destroy()
		}
		return nil, err
	}
	q, err := r.id.m.connectableQP(op, pair)
	if err != nil {
		return nil, err
	}
	if r.answered.Swap(true) {
		return fail(errAnswered)
	}
	c := newConn(r.id, q)
	if err := c.accept(&cmParam, param, until); err != nil {
		if q.accepting.Load() {
			// Linux's iWARP destroys the identifier only after the peer has sent data: do not wait.
			go func() {
				r.id.destroy()
				q.accepting.Store(false)
			}()
		} else {
			r.id.destroy()
		}
		return fail(err)
	}
	c.param, c.remote = r.param, r.remote
	return c.register(), nil
}

var errAnswered = fmt.Errorf("%w: the request has been answered", verbs.ErrInvalid)

// accept moves the queue pair to RTS, accepts the request and waits until the connection is
// established. Under iWARP, q.accepting stays set if that wait fails: the kernel cannot cancel, and
// the queue pair must not be destroyed.
func (c *conn) accept(cmParam *C.struct_shim_cm_param, param verbs.ConnParam, until deadline) error {
	if err := c.moveToInit(param.ResponderResources > 0); err != nil {
		return err
	}
	if err := c.moveToRTS(&param); err != nil {
		return err
	}
	c.setQP(cmParam)
	c.q.accepting.Store(c.id.m.ctx.info.Transport == verbs.TransportIWARP)
	if err := c.id.accept(cmParam); err != nil {
		c.q.accepting.Store(false)
		return err
	}
	e, err := c.id.nextEvent(until)
	if err == nil {
		c.q.accepting.Store(false)
	}
	switch {
	case err != nil:
		return err
	case e.kind != C.RDMA_CM_EVENT_ESTABLISHED:
		return e.unexpected()
	}
	return nil
}

// acceptUD replies with the number of a UD queue pair. The kernel adds the Q_Key, which for
// IP addresses is a constant; the queue pair gets this Q_Key.
func (r *request) acceptUD(pair verbs.QP, cmParam *C.struct_shim_cm_param) error {
	const op = "accept"
	m := r.id.m
	if err := enter(m.ctx, op); err != nil {
		return err
	}
	defer m.ctx.leave()
	q, err := objectOf[*qp](m.ctx, "queue pair", pair)
	if err != nil {
		return opError(op, r.remote.String(), err)
	}
	var a C.struct_ibv_qp_attr
	if err := shimError(C.shim_query_qp(q.c, &a, C.IBV_QP_STATE|C.IBV_QP_QKEY)); err != nil {
		return opError(op, q.name(), err)
	}
	if r.answered.Swap(true) {
		return opError(op, r.remote.String(), errAnswered)
	}
	if a.qkey != C.RDMA_UDP_QKEY {
		a.qkey = C.RDMA_UDP_QKEY // the state in a is the present one, which stays
		if err := q.modify(&a, C.IBV_QP_STATE|C.IBV_QP_QKEY); err != nil {
			return opError(op, q.name(), fmt.Errorf("the key of datagram services, %#x: %w", uint32(C.RDMA_UDP_QKEY), err))
		}
	}
	cmParam.qp_num = C.uint32_t(q.num)
	return opError(op, r.remote.String(), r.id.accept(cmParam))
}

// Reject implements verbs.ConnRequest.
func (r *request) Reject(private []byte) error {
	cmParam, err := paramToC(verbs.ConnParam{PrivateData: private})
	if err != nil {
		return opError("reject", r.remote.String(), err)
	}
	if r.answered.Swap(true) {
		return opError("reject", r.remote.String(), errAnswered)
	}
	err = r.id.call(func() C.int { return C.shim_reject(r.id.c, &cmParam) })
	r.id.destroy()
	return opError("reject", r.remote.String(), err)
}
