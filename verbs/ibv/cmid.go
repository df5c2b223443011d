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
	m *manager
	c *C.struct_rdma_cm_id
	// events are what the dispatcher has for it.
	events chan cmEvent
	gone   chan struct{} // closed when it is destroyed
	conn   atomic.Pointer[conn]

	mu        sync.RWMutex // held for writing by who destroys it
	destroyed bool         // mu
}

// listenQueue is how many requests can wait for GetRequest; the kernel's backlog is smaller.
const listenQueue = 1024

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

// eventOf copies an event. The library tells depths as they concern us: what the peer
// accepts is what we may ask for. We tell what the peer said.
func eventOf(e *C.struct_shim_cm_event, request *cmID) cmEvent {
	p := &e.param
	data := unsafe.Slice((*byte)(unsafe.Pointer(&p.private_data[0])), int(p.private_data_len))
	return cmEvent{
		kind: uint32(e._type), status: int(e.status), request: request,
		param: verbs.ConnParam{
			PrivateData: append([]byte(nil), data...), ResponderResources: uint8(p.initiator_depth), InitiatorDepth: uint8(p.responder_resources),
			RetryCount: uint8(p.retry_count), RNRRetryCount: uint8(p.rnr_retry_count), FlowControl: p.flow_control != 0,
		},
		ah: addressFrom(&e.ah), qpn: verbs.QPN(p.qp_num), qkey: uint32(e.qkey),
	}
}

// create makes an identifier with room for so many events besides its own.
func (m *manager) create(op string, space verbs.PortSpace, queue int) (*cmID, error) {
	if err := m.ctx.enter(op); err != nil {
		return nil, err
	}
	defer m.ctx.leave()
	id := &cmID{m: m, events: make(chan cmEvent, 16+queue), gone: make(chan struct{})}
	if ret, errno := C.rdma_create_id(m.events, &id.c, nil, uint32(space)); ret != 0 {
		return nil, failed("create_id", m.ctx.info.Name, cause(errno))
	}
	if !m.addID(id) {
		id.destroy()
		return nil, failed("create_id", m.ctx.info.Name, verbs.ErrClosed)
	}
	return id, nil
}

// deliver hands over an event. An identifier has few, and who does not look at them has
// no need of more than the room there is.
func (id *cmID) deliver(e *C.struct_shim_cm_event) {
	select {
	case id.events <- eventOf(e, nil):
	default:
	}
}

// next returns the next event.
func (id *cmID) next(until deadline) (cmEvent, error) {
	select {
	case e := <-id.events: // what is there is there, also for who has no time
		return e, nil
	default:
	}
	timer, stop := until.timer()
	defer stop()
	select {
	case e := <-id.events:
		return e, nil
	case <-timer:
		return cmEvent{}, verbs.ErrTimeout
	case <-id.gone:
		return cmEvent{}, verbs.ErrClosed
	}
}

// call does something with the identifier that nobody destroys meanwhile.
func (id *cmID) call(f func() error) error {
	id.mu.RLock()
	defer id.mu.RUnlock()
	if id.destroyed {
		return verbs.ErrClosed
	}
	return f()
}

// destroy gives it back to the library, and returns when that is done, whoever does it.
// Requests that nobody has looked at are refused.
func (id *cmID) destroy() {
	id.mu.Lock()
	if !id.destroyed {
		id.destroyed = true
		C.rdma_destroy_id(id.c) // waits until its events were acknowledged
		close(id.gone)
	}
	id.mu.Unlock()
	id.m.mu.Lock()
	if id.m.ids[id.c] == id { // the library may have given its place to another by now
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

// device is the name of the device that the identifier is bound to; "" if there is none.
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

// route finds the way to an address.
func (id *cmID) route(addr netip.AddrPort, until deadline) error {
	sa, err := id.m.sockaddr(addr)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		done uint32
		call func(ms C.int) C.int
	}{
		{C.RDMA_CM_EVENT_ADDR_RESOLVED, func(ms C.int) C.int { return C.shim_resolve_addr(id.c, &sa, ms) }},
		{C.RDMA_CM_EVENT_ROUTE_RESOLVED, func(ms C.int) C.int { return C.shim_resolve_route(id.c, ms) }},
	} {
		e, err := id.step(step.call, until)
		switch {
		case err != nil:
			return err
		case e.kind != step.done:
			return e.refusal()
		}
	}
	return id.checkDevice(addr)
}

// step asks the kernel for something and returns its answer. An address whose owner is not
// known yet may be looked up once only in the time that the kernel is given, and at the
// end of it: so that is short, and it is asked again.
func (id *cmID) step(call func(ms C.int) C.int, until deadline) (cmEvent, error) {
	const most = 250
	for {
		left := until.millis()
		if err := id.call(func() error { return shimError(call(C.int(min(left, most)))) }); err != nil {
			return cmEvent{}, err
		}
		e, err := id.next(until)
		late := e.status == -int(syscall.ETIMEDOUT) && (e.kind == C.RDMA_CM_EVENT_ADDR_ERROR || e.kind == C.RDMA_CM_EVENT_ROUTE_ERROR)
		if err != nil || !late || left <= most {
			return e, err
		}
	}
}

// refusal is the error in an event that is not the one that was waited for.
func (e *cmEvent) refusal() error {
	reason := fmt.Errorf("%s", C.GoString(C.rdma_event_str(e.kind)))
	switch {
	case e.kind == C.RDMA_CM_EVENT_REJECTED:
		return e.rejected()
	case e.status < 0:
		return fmt.Errorf("%w: %w", reason, errnoError(e.status))
	case e.kind == C.RDMA_CM_EVENT_UNREACHABLE && e.status > 0: // of a datagram service: what it answered
		return &verbs.RejectError{Reason: uint16(e.status), Text: fmt.Sprintf("the service answered with status %d", e.status), PrivateData: e.param.PrivateData}
	case e.status != 0:
		return fmt.Errorf("%w: status %d", reason, e.status)
	}
	return reason
}

// rejected is a refusal: InfiniBand's has a reason, iWARP's an errno.
func (e *cmEvent) rejected() error {
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

// rejectReasons are those of InfiniBand's REJ message that a program can meet.
var rejectReasons = map[uint16]string{
	1: "no queue pair available", 3: "no resources available", 4: "timeout", 5: "unsupported request",
	6: "invalid communication ID", 8: "invalid service ID: nobody listens there", 9: "invalid transport service type",
	10: "stale connection", 12: "invalid GID", 18: "invalid alternate GID", 24: "port redirection", 26: "invalid path MTU",
	27: "insufficient responder resources", 28: "the program there refused", 30: "invalid flow label",
}

// sockaddr translates an address. A link-local one without a zone is of the device's own
// network: GIDs have no zones.
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

func addressOf(sa *C.struct_sockaddr) netip.AddrPort {
	var ip [16]byte
	var port C.uint16_t
	n := C.shim_address(sa, (*C.uint8_t)(unsafe.Pointer(&ip[0])), &port)
	a, _ := netip.AddrFromSlice(ip[:n])
	return netip.AddrPortFrom(a.Unmap(), uint16(port))
}

// deadline is when a call that waits gives up; the zero value is never.
type deadline struct{ at time.Time }

func newDeadline(timeout time.Duration) deadline {
	if timeout < 0 {
		return deadline{}
	}
	return deadline{time.Now().Add(timeout)}
}

func (d deadline) timer() (<-chan time.Time, func()) {
	if d.at.IsZero() {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(d.at))
	return t.C, func() { t.Stop() }
}

// millis is what is left, for the kernel's own timers, which have no for ever.
func (d deadline) millis() int64 {
	const longest = time.Minute
	left := longest
	if !d.at.IsZero() {
		left = min(time.Until(d.at), longest)
	}
	return max(1, int64(math.Ceil(left.Seconds()*1000)))
}
