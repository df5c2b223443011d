package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// defaultBacklog is rdma_cm's.
const defaultBacklog = 128

// portAttempts is how often a port is looked for that is free on all addresses.
const portAttempts = 16

// listener is a verbs.Listener: one that takes streams on each address it stands
// for.
type listener struct {
	m         *manager
	addr      netip.AddrPort
	listeners []drive.StreamListener
	backlog   int
	cond      drive.Cond
	// All that came in and was not given out: first those whose Request has not
	// come, or not all of it.
	starting []*connection
	queue    []*connection
	closed   bool
}

// Listen waits for requests to addr. An unspecified address, of either family,
// means all that the device has. Up to backlog streams may wait, for their
// Request to come or for Next to give it out; more are reset.
func (m *manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	const op = "listen"
	if space != verbs.PortSpaceTCP {
		return nil, connError(op, addr, fmt.Errorf("%w: port space %#x: iWARP has connections only, of PortSpaceTCP", verbs.ErrNotSupported, uint16(space)))
	}
	if backlog <= 0 {
		backlog = defaultBacklog
	}
	l := &listener{m: m, backlog: backlog}
	err := m.d.Control(op, func() error {
		if err := l.listen(addr); err != nil {
			return connError(op, addr, err)
		}
		l.cond = m.d.streams.NewCond(drive.WaitReason(fmt.Sprintf("connection request to %v", l.addr)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// listen opens a stream listener on each address, all with the same port.
func (l *listener) listen(addr netip.AddrPort) (err error) {
	at := []netip.Addr{addr.Addr().Unmap()}
	switch own := l.m.d.addrs.Present(); {
	case len(own) == 0:
		return fmt.Errorf("%w: the device has no address now: its interface may be down", verbs.ErrNotFound)
	case at[0].IsUnspecified():
		at = own
	case !slices.Contains(own, at[0]):
		return fmt.Errorf("%w: the device has %v", verbs.ErrNotFound, own)
	}
	for range portAttempts {
		if err = l.listenOnPort(at, addr.Port()); err == nil {
			l.addr = netip.AddrPortFrom(addr.Addr(), l.listeners[0].Addr().Port())
			return nil
		}
		if addr.Port() != 0 || !errors.Is(err, link.ErrAddrInUse) {
			return err
		}
	}
	return err
}

func (l *listener) listenOnPort(at []netip.Addr, port uint16) error {
	for _, a := range at {
		end, err := l.m.d.streams.Listen(netip.AddrPortFrom(a, port), l.backlog, l.accept)
		if err != nil {
			l.closeListeners()
			return err
		}
		l.listeners = append(l.listeners, end)
		port = end.Addr().Port()
	}
	return nil
}

func (l *listener) closeListeners() {
	for _, end := range l.listeners {
		_ = end.Close() // it is open, or the whole net is closed
	}
	l.listeners = nil
}

// accept gives a stream that came in its connection, if there is a place for one
// more.
func (l *listener) accept(remote netip.AddrPort) drive.StreamConn {
	if len(l.starting)+len(l.queue) >= l.backlog {
		l.m.backlogFull++
		return nil
	}
	c := l.m.d.nic.Incoming()
	x := l.m.newConnection(c, nil, remote, fmt.Sprintf("confirmation of %v", remote))
	x.listener = l
	l.starting = append(l.starting, x)
	return x.wire
}

// changed hears of a connection that was not given out yet: it has its Request,
// or came to nothing.
func (l *listener) onStateChange(x *connection) {
	is := func(y *connection) bool { return x == y }
	switch s := x.c.State(); {
	case s < engine.Requested:
	case s == engine.Requested:
		l.starting = slices.DeleteFunc(l.starting, is)
		l.queue = append(l.queue, x)
		l.cond.Notify()
	default:
		x.listener = nil
		l.starting = slices.DeleteFunc(l.starting, is)
		l.queue = slices.DeleteFunc(l.queue, is)
	}
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

func (l *listener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	const op = "get_request"
	if err := l.m.d.Enter(op, drive.CallWait); err != nil {
		return nil, err
	}
	defer l.m.d.Leave()
	if err := l.m.d.Wait(op, l.cond, timeout, func() bool { return len(l.queue) > 0 || l.closed }); err != nil {
		return nil, err
	}
	if l.closed {
		return nil, connError(op, l.addr, verbs.ErrClosed)
	}
	x := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	x.listener = nil
	return &request{x: x, param: l.m.peerParam(x.c)}, nil
}

// Close stops listening and rejects the connection requests that were not accepted yet.
func (l *listener) Close() error {
	return l.m.d.Control("close_listener", func() error {
		if l.closed {
			return connError("close_listener", l.addr, verbs.ErrClosed)
		}
		l.closed = true
		l.closeListeners()
		for _, x := range l.queue {
			x.listener = nil
			_ = x.c.Reject(l.m.d.streams.Now(), nil) // the peer waits for a reply
		}
		for _, x := range l.starting {
			x.listener = nil
			x.c.Abort()
		}
		l.queue, l.starting = nil, nil
		l.cond.Notify()
		return nil
	})
}

// request is a verbs.ConnRequest.
type request struct {
	x     *connection
	param verbs.ConnParam
}

func (r *request) Remote() netip.AddrPort { return r.x.remote }

func (r *request) Param() verbs.ConnParam { return r.param }

// gone says that there is nobody to answer any more.
func (r *request) checkRequester() error {
	if c := r.x.c; c.State() > engine.Requested && c.QP() == nil && c.Err() != nil {
		return fmt.Errorf("%w: the requester has gone: %w", verbs.ErrClosed, c.Err())
	}
	return nil
}

func (r *request) Reject(private []byte) error {
	m := r.x.m
	return m.d.Control("reject", func() error {
		err := r.checkRequester()
		if err == nil {
			err = r.x.c.Reject(m.d.streams.Now(), private)
		}
		if err != nil {
			return connError("reject", r.x.remote, err)
		}
		return nil
	})
}

func (r *request) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "accept"
	m := r.x.m
	if err := m.d.Enter(op, drive.CallControl); err != nil {
		return nil, err
	}
	defer m.d.Leave()
	q, err := device.CheckHandle[*queuePair](&m.d.shared, op, "QP", qp)
	if err != nil {
		return nil, err
	}
	if err := r.accept(q, param, timeout); err != nil {
		return nil, connError(op, r.x.remote, err)
	}
	return r.x, nil
}

// accept answers the request and waits until the peer has confirmed.
func (r *request) accept(q *queuePair, param verbs.ConnParam, timeout time.Duration) error {
	x := r.x
	if err := r.checkRequester(); err != nil {
		return err
	}
	if err := x.c.Accept(x.m.d.streams.Now(), q.q, engineParam(param)); err != nil {
		return err
	}
	x.qp = q
	x.m.d.streams.Pump()
	return x.waitEstablished(timeout)
}
