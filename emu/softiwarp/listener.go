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

// defaultBacklog is the backlog of rdma_cm.
const defaultBacklog = 128

// portAttempts is the number of attempts to find a port that is free on all addresses.
const portAttempts = 16

// listener implements verbs.Listener, with a stream listener for each address.
type listener struct {
	m         *manager
	addr      netip.AddrPort
	listeners []drive.StreamListener
	backlog   int
	cond      drive.Cond
	starting  []*connection // accepted, without a complete MPA Request yet
	queue     []*connection // with a Request, to be returned by GetRequest
	closed    bool
}

// Listen implements verbs.CM. An unspecified address of either family means all addresses of the
// device. Up to backlog connections may wait for their Request or for GetRequest; more are reset.
func (m *manager) Listen(addr netip.AddrPort, space verbs.PortSpace, backlog int) (verbs.Listener, error) {
	const op = "listen"
	if space != verbs.PortSpaceTCP {
		return nil, connError(op, addr, fmt.Errorf("%w: port space %#x: iWARP supports PortSpaceTCP only", verbs.ErrNotSupported, uint16(space)))
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

// listen opens a stream listener on addr, or on each address of the device if addr is
// unspecified, all with the same port. If the port is 0, it tries free ports.
func (l *listener) listen(addr netip.AddrPort) (err error) {
	local := []netip.Addr{addr.Addr().Unmap()}
	switch own := l.m.d.addrs.Present(); {
	case len(own) == 0:
		return fmt.Errorf("%w: the device has no address: its interface may be down", verbs.ErrNotFound)
	case local[0].IsUnspecified():
		local = own
	case !slices.Contains(own, local[0]):
		return fmt.Errorf("%w: the addresses of the device are %v", verbs.ErrNotFound, own)
	}
	for range portAttempts {
		if err = l.listenOnPort(local, addr.Port()); err == nil {
			l.addr = netip.AddrPortFrom(addr.Addr(), l.listeners[0].Addr().Port())
			return nil
		}
		if addr.Port() != 0 || !errors.Is(err, link.ErrAddrInUse) {
			return err
		}
	}
	return err
}

// listenOnPort opens a stream listener on each address, all with the same port. If port is 0, that
// is a free port of the first address.
func (l *listener) listenOnPort(local []netip.Addr, port uint16) error {
	for _, a := range local {
		stream, err := l.m.d.streams.Listen(netip.AddrPortFrom(a, port), l.backlog, l.accept)
		if err != nil {
			l.closeListeners()
			return err
		}
		l.listeners = append(l.listeners, stream)
		port = stream.Addr().Port()
	}
	return nil
}

func (l *listener) closeListeners() {
	for _, stream := range l.listeners {
		_ = stream.Close() // fails only if the net is closed
	}
	l.listeners = nil
}

// accept returns the connection of an incoming stream; nil if the backlog is full.
func (l *listener) accept(remote netip.AddrPort) drive.StreamConn {
	if len(l.starting)+len(l.queue) >= l.backlog {
		l.m.backlogFull++
		return nil
	}
	c := l.m.d.nic.Incoming()
	x := l.m.newConnection(c, nil, remote, fmt.Sprintf("confirmation of %v", remote))
	x.listener = l
	l.starting = append(l.starting, x)
	return x.c
}

// onStateChange handles a new state of connection x, which the application has not yet taken with
// GetRequest. It queues x for GetRequest when the MPA Request of x has arrived, and removes x when
// the connection has ended.
func (l *listener) onStateChange(x *connection) {
	isX := func(other *connection) bool { return other == x }
	switch s := x.c.State(); {
	case s < engine.Requested:
	case s == engine.Requested:
		l.starting = slices.DeleteFunc(l.starting, isX)
		l.queue = append(l.queue, x)
		l.cond.Notify()
	default:
		x.listener = nil
		l.starting = slices.DeleteFunc(l.starting, isX)
		l.queue = slices.DeleteFunc(l.queue, isX)
	}
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

// GetRequest implements verbs.Listener: it waits for the next connection with an MPA Request.
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

// Close stops listening, rejects the requests that GetRequest has not returned, and aborts
// connections whose MPA Request has not arrived.
func (l *listener) Close() error {
	return l.m.d.Control("close_listener", func() error {
		if l.closed {
			return connError("close_listener", l.addr, verbs.ErrClosed)
		}
		l.closed = true
		l.closeListeners()
		for _, x := range l.queue {
			x.listener = nil
			_ = x.c.Reject(l.m.d.streams.Now(), nil) // the connection may have ended
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

// request implements verbs.ConnRequest.
type request struct {
	x     *connection
	param verbs.ConnParam
}

func (r *request) Remote() netip.AddrPort { return r.x.remote }

func (r *request) Param() verbs.ConnParam { return r.param }

// checkRequester returns an error if the requester has closed the connection.
func (r *request) checkRequester() error {
	// A connection without a queue pair was not accepted.
	if c := r.x.c; c.State() > engine.Requested && c.QP() == nil && c.Err() != nil {
		return fmt.Errorf("%w: the requester has closed the connection: %w", verbs.ErrClosed, c.Err())
	}
	return nil
}

// Reject implements verbs.ConnRequest: it sends an MPA Reply with the reject flag.
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

// Accept implements verbs.ConnRequest. It connects the queue pair, sends the MPA Reply, and waits
// until the connection is established.
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
	err = r.checkRequester()
	if err == nil {
		err = r.x.c.Accept(m.d.streams.Now(), q.q, engineParam(param))
	}
	if err == nil {
		r.x.qp = q
		m.d.streams.Pump()
		err = r.x.waitEstablished(timeout)
	}
	if err != nil {
		return nil, connError(op, r.x.remote, err)
	}
	return r.x, nil
}
