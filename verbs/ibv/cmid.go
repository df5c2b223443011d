//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// cmID is an identifier of librdmacm: a listener, a request or a connection.
type cmID struct {
	m           *manager
	c           *C.struct_rdma_cm_id
	events      chan cmEvent  // from the dispatcher
	destroyedCh chan struct{} // closed when it is destroyed
	conn        atomic.Pointer[conn]

	mu        sync.RWMutex // held for writing by destroy
	destroyed bool         // mu
}

const (
	// maxOwnEvents is the maximum number of queued events of a connection; there are few.
	maxOwnEvents = 16
	// maxListenRequests is the maximum number of requests that wait for GetRequest; the kernel's
	// backlog is smaller.
	maxListenRequests = 1024
	// noRequests is the maximum number of requests of an identifier that does not listen.
	noRequests = 0
)

// cmEvent is an event of the connection manager, and its parts.
type cmEvent struct {
	kind    uint32
	status  int
	param   verbs.ConnParam // as the peer sees it
	request *cmID           // the identifier of a connection request
	ah      verbs.AHAttr
	qpn     verbs.QPN
	qkey    uint32
}

// eventOf copies an event. request is the identifier of a connection request, nil for other events.
// librdmacm swaps the peer's responder resources and initiator depth; eventOf swaps them back.
func eventOf(e *C.struct_shim_cm_event, request *cmID) cmEvent {
	p := &e.param
	data := unsafe.Slice((*byte)(unsafe.Pointer(&p.private_data[0])), int(p.private_data_len))
	return cmEvent{
		kind: uint32(e._type), status: int(e.status), request: request,
		param: verbs.ConnParam{
			PrivateData: append([]byte(nil), data...), ResponderResources: uint8(p.initiator_depth), InitiatorDepth: uint8(p.responder_resources),
			RetryCount: uint8(p.retry_count), RNRRetryCount: uint8(p.rnr_retry_count), FlowControl: p.flow_control != 0,
		},
		ah: addressFromC(&e.ah), qpn: verbs.QPN(p.qp_num), qkey: uint32(e.qkey),
	}
}

// createID creates an identifier for the verb op. Its queue holds maxRequests connection requests
// besides its own events.
func (m *manager) createID(op string, space verbs.PortSpace, maxRequests int) (*cmID, error) {
	if err := enter(m.ctx, op); err != nil {
		return nil, err
	}
	defer m.ctx.leave()
	id := &cmID{m: m, events: make(chan cmEvent, maxOwnEvents+maxRequests), destroyedCh: make(chan struct{})}
	if ret, errno := C.rdma_create_id(m.events, &id.c, nil, uint32(space)); ret != 0 {
		return nil, opError("create_id", m.ctx.info.Name, cause(errno))
	}
	if !m.addID(id) {
		id.destroy()
		return nil, opError("create_id", m.ctx.info.Name, verbs.ErrClosed)
	}
	return id, nil
}

// deliver queues an event. It drops the event if the queue is full, which happens only if no
// goroutine reads the queue any more.
func (id *cmID) deliver(e *C.struct_shim_cm_event) {
	select {
	case id.events <- eventOf(e, nil):
	default:
	}
}

// nextEvent waits for the next event. It returns ErrTimeout, or ErrClosed after destroy.
func (id *cmID) nextEvent(until deadline) (cmEvent, error) {
	return receive(id.events, id.destroyedCh, until)
}

// receive waits for a value of a channel. A value that is there already is returned even if the
// deadline has passed or done is closed; else the error is ErrTimeout or ErrClosed.
func receive[T any](values <-chan T, done <-chan struct{}, until deadline) (value T, err error) {
	select {
	case value = <-values:
		return value, nil
	default:
	}
	timer, stop := until.timer()
	defer stop()
	select {
	case value = <-values:
		return value, nil
	case <-timer:
		return value, verbs.ErrTimeout
	case <-done:
		return value, verbs.ErrClosed
	}
}

// connect calls rdma_connect, which requests a connection or, from a datagram service, the number
// of its queue pair (SIDR).
func (id *cmID) connect(param *C.struct_shim_cm_param) error {
	const accept = 0 // false
	return id.call(func() C.int { return C.shim_connect_or_accept(id.c, param, accept) })
}

// accept calls rdma_accept.
func (id *cmID) accept(param *C.struct_shim_cm_param) error {
	const accept = 1 // true
	return id.call(func() C.int { return C.shim_connect_or_accept(id.c, param, accept) })
}

// call runs f, which calls librdmacm, unless the identifier is destroyed, and returns the error for
// the errno that f returns. destroy waits for f.
func (id *cmID) call(f func() C.int) error {
	id.mu.RLock()
	defer id.mu.RUnlock()
	if id.destroyed {
		return verbs.ErrClosed
	}
	return shimError(f())
}

// destroy destroys the identifier and rejects queued requests. A second call waits for the first.
func (id *cmID) destroy() {
	id.mu.Lock()
	if !id.destroyed {
		id.destroyed = true
		C.rdma_destroy_id(id.c) // waits until its events were acknowledged
		close(id.destroyedCh)
	}
	id.mu.Unlock()
	id.m.mu.Lock()
	if id.m.ids[id.c] == id { // the library may have reused the address
		delete(id.m.ids, id.c)
	}
	id.m.mu.Unlock()
	for {
		select {
		case e := <-id.events:
			if e.request != nil {
				e.request.destroy()
			}
		default:
			return
		}
	}
}

// device returns the name of the device that the identifier is bound to; "" if there is none.
func (id *cmID) device() string {
	if name := C.shim_id_device(id.c); name != nil {
		return C.GoString(name)
	}
	return ""
}

// checkDevice returns an error unless the identifier is bound to the opened device.
func (id *cmID) checkDevice(addr netip.AddrPort) error {
	if has, wanted := id.device(), id.m.ctx.info.Name; has != wanted {
		return wrongDeviceError(addr, has, wanted)
	}
	return nil
}

// resolve resolves an address and the route to it, and checks that the route is over our device.
func (id *cmID) resolve(addr netip.AddrPort, until deadline) error {
	sa, err := id.m.sockaddr(addr)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		resolved uint32 // event after success
		call     func(ms C.int) C.int
	}{
		{C.RDMA_CM_EVENT_ADDR_RESOLVED, func(ms C.int) C.int { return C.shim_resolve_addr(id.c, &sa, ms) }},
		{C.RDMA_CM_EVENT_ROUTE_RESOLVED, func(ms C.int) C.int { return C.shim_resolve_route(id.c, ms) }},
	} {
		e, err := id.callWithTimeout(step.call, until)
		switch {
		case err != nil:
			return err
		case e.kind != step.resolved:
			return e.unexpected()
		}
	}
	return id.checkDevice(addr)
}

// callWithTimeout calls a function of librdmacm, whose argument is a timeout in milliseconds, and
// returns its event. The kernel may look up an unknown address only once, at the end of the
// timeout, so callWithTimeout repeats the call with a short timeout until the deadline.
func (id *cmID) callWithTimeout(call func(ms C.int) C.int, until deadline) (cmEvent, error) {
	const maxTimeout = 250 // milliseconds
	for {
		left := until.millis()
		if err := id.call(func() C.int { return call(C.int(min(left, maxTimeout))) }); err != nil {
			return cmEvent{}, err
		}
		e, err := id.nextEvent(until)
		late := e.status == -int(syscall.ETIMEDOUT) && (e.kind == C.RDMA_CM_EVENT_ADDR_ERROR || e.kind == C.RDMA_CM_EVENT_ROUTE_ERROR)
		if err != nil || !late || left <= maxTimeout {
			return e, err
		}
	}
}

// unexpected returns the error that an event other than the expected one stands for.
func (e *cmEvent) unexpected() error {
	reason := fmt.Errorf("%s", C.GoString(C.rdma_event_str(e.kind)))
	switch {
	case e.kind == C.RDMA_CM_EVENT_REJECTED:
		return e.rejectError()
	case e.status < 0:
		return fmt.Errorf("%w: %w", reason, errnoError(e.status))
	case e.kind == C.RDMA_CM_EVENT_UNREACHABLE && e.status > 0: // the SIDR status of a datagram service
		return &verbs.RejectError{Reason: uint16(e.status), Text: fmt.Sprintf("the service answered with status %d", e.status), PrivateData: e.param.PrivateData}
	case e.status != 0:
		return fmt.Errorf("%w: status %d", reason, e.status)
	}
	return reason
}

// rejectError returns the error of a rejection: InfiniBand has a reason, iWARP an errno.
func (e *cmEvent) rejectError() error {
	r := &verbs.RejectError{PrivateData: e.param.PrivateData}
	if e.status < 0 {
		r.Text = syscall.Errno(-e.status).Error()
		return r
	}
	r.Reason = uint16(e.status)
	r.Text = rejectReasons[r.Reason]
	if r.Text == "" {
		r.Text = "reason " + strconv.Itoa(e.status)
	}
	return r
}

// rejectReasons are reasons of InfiniBand's REJ message.
var rejectReasons = map[uint16]string{
	1: "no queue pair available", 3: "no resources available", 4: "timeout", 5: "unsupported request",
	6: "invalid communication ID", 8: "invalid service ID: nobody listens there", 9: "invalid transport service type",
	10: "stale connection", 12: "invalid GID", 18: "invalid alternate GID", 24: "port redirection", 26: "invalid path MTU",
	27: "insufficient responder resources", 28: "the program there refused", 30: "invalid flow label",
}

// sockaddr returns an address as a sockaddr. A link-local address without a zone, such as that of a
// GID, gets the zone of the device's network interface.
func (m *manager) sockaddr(a netip.AddrPort) (sa C.struct_sockaddr_storage, err error) {
	ip := a.Addr().Unmap()
	if !ip.IsValid() {
		return sa, fmt.Errorf("%w: no address", verbs.ErrInvalid)
	}
	var scope int
	if zone := ip.Zone(); zone != "" {
		if scope, err = strconv.Atoi(zone); err != nil {
			netif, err := net.InterfaceByName(zone)
			if err != nil {
				return sa, errors.Join(verbs.ErrNotFound, err)
			}
			scope = netif.Index
		}
	} else if ip.IsLinkLocalUnicast() && ip.Is6() {
		scope = m.ctx.netIndex()
	}
	raw := ip.AsSlice()
	C.shim_sockaddr(&sa, (*C.uint8_t)(unsafe.Pointer(&raw[0])), C.int(len(raw)), C.uint16_t(a.Port()), C.uint32_t(scope))
	return sa, nil
}

// addressOf returns a sockaddr as an address.
func addressOf(sa *C.struct_sockaddr) netip.AddrPort {
	var ip [16]byte
	var port C.uint16_t
	n := C.shim_address(sa, (*C.uint8_t)(unsafe.Pointer(&ip[0])), &port)
	a, _ := netip.AddrFromSlice(ip[:n])
	return netip.AddrPortFrom(a.Unmap(), uint16(port))
}

// deadline is the end of the timeout of a blocking call; the zero value is never.
type deadline struct{ at time.Time }

// newDeadline returns the end of a timeout that begins now; a negative one never ends.
func newDeadline(timeout time.Duration) deadline {
	if timeout < 0 {
		return deadline{}
	}
	return deadline{time.Now().Add(timeout)}
}

// timer returns a channel that receives at the deadline, and a function that stops the timer.
func (d deadline) timer() (<-chan time.Time, func()) {
	if d.at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(d.at))
	return t.C, func() { t.Stop() }
}

// millis returns the time left for kernel timers, which must be finite: at most a minute.
func (d deadline) millis() int64 {
	const longest = time.Minute
	left := longest
	if !d.at.IsZero() {
		left = min(time.Until(d.at), longest)
	}
	return max(1, int64(math.Ceil(left.Seconds()*1000)))
}
