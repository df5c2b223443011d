//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// manager is the connection manager of an opened device. librdmacm opens the devices itself and
// cannot use our queue pairs: the manager passes it only their numbers, and modifies them itself.
type manager struct {
	ctx    *Context
	events *C.struct_rdma_event_channel
	waits  *waiter
	done   chan struct{} // closed when the dispatcher has ended

	mu      sync.Mutex
	ids     map[*C.struct_rdma_cm_id]*cmID // mu
	stopped bool                           // mu; no new identifiers
}

// hasCM reports whether this program can use the connection manager of the kernel.
func hasCM() bool {
	ch := C.rdma_create_event_channel()
	if ch != nil {
		C.rdma_destroy_event_channel(ch)
	}
	return ch != nil
}

// CM implements verbs.Context. The first call creates the connection manager.
func (c *Context) CM() (verbs.CM, error) {
	const op = "cm"
	if err := enter(c, op); err != nil {
		return nil, err
	}
	defer c.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cm != nil {
		return c.cm, nil
	}
	ch, errno := C.rdma_create_event_channel()
	if ch == nil {
		const hint = "there is no /dev/infiniband/rdma_cm; modprobe rdma_ucm"
		return nil, opError("create_event_channel", c.info.Name, hinted(cause(errno), hint, syscall.ENOENT, syscall.ENODEV))
	}
	waits, err := newWaiter(ch.fd)
	if err != nil {
		C.rdma_destroy_event_channel(ch)
		return nil, opError("create_event_channel", c.info.Name, err)
	}
	c.cm = &manager{ctx: c, events: ch, waits: waits, ids: make(map[*C.struct_rdma_cm_id]*cmID), done: make(chan struct{})}
	go c.cm.dispatch()
	return c.cm, nil
}

// dispatch reads the events of all rdma_cm identifiers and delivers them.
func (m *manager) dispatch() {
	defer close(m.done)
	for {
		var e C.struct_shim_cm_event
		err := m.waits.wait(verbs.Forever, func() (bool, error) {
			ret, errno := C.shim_cm_event_next(m.events, &e)
			if ret != 0 {
				return false, ignoreEAGAIN(errno)
			}
			return true, nil
		})
		if err != nil {
			return // stop was called, or the kernel's connection manager is gone
		}
		m.handle(&e)
	}
}

// handle delivers an event to its identifier. It looks up the identifier before it acknowledges the
// event: rdma_destroy_id waits for the acknowledgement, so no new identifier has the same address.
func (m *manager) handle(e *C.struct_shim_cm_event) {
	m.mu.Lock()
	id := m.ids[e.id]
	listenID := m.ids[e.listener] // nil unless e is a connection request
	m.mu.Unlock()
	C.rdma_ack_cm_event(e.raw)
	e.raw = nil
	switch {
	case e._type == C.RDMA_CM_EVENT_CONNECT_REQUEST:
		m.handleConnectRequest(listenID, e)
	case id == nil: // it was destroyed
	case endsConnection(uint32(e._type)):
		id.deliver(e)
		if c := id.conn.Load(); c != nil {
			c.disconnected()
		}
	default:
		id.deliver(e)
	}
}

// handleConnectRequest passes a request to its listener, if that still listens and the request came
// in over our device; otherwise it rejects the request.
func (m *manager) handleConnectRequest(listenID *cmID, e *C.struct_shim_cm_event) {
	id := &cmID{m: m, c: e.id, events: make(chan cmEvent, maxOwnEvents), destroyedCh: make(chan struct{})}
	if listenID == nil || id.device() != m.ctx.info.Name || !m.addID(id) || !m.queueRequest(listenID, eventOf(e, id)) {
		id.destroy() // rejects the request
	}
}

// queueRequest queues a request for GetRequest. It returns false if the listener was destroyed or
// its queue is full.
func (m *manager) queueRequest(listenID *cmID, e cmEvent) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids[listenID.c] != listenID {
		return false
	}
	select {
	case listenID.events <- e:
		return true
	default:
		return false
	}
}

// addID registers an identifier for its events. It returns false if the manager has stopped.
func (m *manager) addID(id *cmID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return false
	}
	m.ids[id.c] = id
	return true
}

// stop ends all waits and destroys all identifiers when the device is closed.
func (m *manager) stop() {
	m.mu.Lock()
	m.stopped = true
	all := slices.Collect(maps.Values(m.ids))
	m.mu.Unlock()
	for _, id := range all {
		if c := id.conn.Load(); c != nil {
			c.release()
		}
		id.destroy() // waits until its events were acknowledged: the dispatcher still runs
	}
	m.waits.stop()
	<-m.done
	C.rdma_destroy_event_channel(m.events)
}

// Listen implements verbs.CM: it binds an ID of librdmacm to the address, which must be one of this
// device or unspecified, and listens on it.
func (m *manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	const op = "listen"
	id, err := m.createID(op, space, maxListenRequests)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (verbs.Listener, error) {
		id.destroy()
		return nil, opError(op, addr.String(), err)
	}
	sa, err := m.sockaddr(addr)
	if err != nil {
		return fail(err)
	}
	if err := shimError(C.shim_bind_addr(id.c, &sa)); err != nil {
		return fail(err)
	}
	if !addr.Addr().IsUnspecified() {
		if err := id.checkDevice(addr); err != nil {
			return fail(err)
		}
	}
	if err := shimError(C.shim_listen(id.c, C.int(max(backlog, 1)))); err != nil {
		return fail(err)
	}
	return &listener{id: id, space: space, addr: addressOf(C.rdma_get_local_addr(id.c))}, nil
}

// Resolve implements verbs.CM: it asks the datagram service at addr for QP number and Q_Key (SIDR).
func (m *manager) Resolve(addr netip.AddrPort, private []byte, timeout time.Duration) (verbs.DatagramPeer, error) {
	const op = "resolve"
	until := newDeadline(timeout)
	fail := func(err error) (verbs.DatagramPeer, error) {
		return verbs.DatagramPeer{}, opError(op, addr.String(), err)
	}
	param, err := paramToC(verbs.ConnParam{PrivateData: private})
	if err != nil {
		return fail(err)
	}
	id, err := m.createID(op, verbs.PortSpaceUDP, noRequests)
	if err != nil {
		return verbs.DatagramPeer{}, err
	}
	defer id.destroy()
	if err := id.resolve(addr, until); err != nil {
		return fail(err)
	}
	if err := id.connect(&param); err != nil {
		return fail(err)
	}
	e, err := id.nextEvent(until)
	switch {
	case err != nil:
		return fail(err)
	case e.kind != C.RDMA_CM_EVENT_ESTABLISHED:
		return fail(e.unexpected())
	}
	return verbs.DatagramPeer{AH: e.ah, QPN: e.qpn, QKey: e.qkey, PrivateData: e.param.PrivateData}, nil
}

// wrongDeviceError returns the error for an address of another device, or of none.
func wrongDeviceError(addr netip.AddrPort, has, wanted string) error {
	if has == "" {
		return fmt.Errorf("%w: no RDMA device has a route to %v", verbs.ErrNotFound, addr.Addr())
	}
	return fmt.Errorf("%w: the kernel's connection manager reaches %v over %s and not over %s; if both have the address, delete one (rdma link delete %s)",
		verbs.ErrNotFound, addr.Addr(), has, wanted, has)
}
