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
	manager   *manager
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
	l := &listener{manager: m, backlog: backlog}
	err := m.device.Control(op, func() error {
		if err := l.listen(addr); err != nil {
			return connError(op, addr, err)
		}
		l.cond = m.device.streams.NewCond(drive.WaitReason(fmt.Sprintf("connection request to %v", l.addr)))
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
	switch present := l.manager.device.addrs.Present(); {
	case len(present) == 0:
		return fmt.Errorf("%w: the device has no address: its interface may be down", verbs.ErrNotFound)
	case local[0].IsUnspecified():
		local = present
	case !slices.Contains(present, local[0]):
		return fmt.Errorf("%w: the addresses of the device are %v", verbs.ErrNotFound, present)
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
		stream, err := l.manager.device.streams.Listen(netip.AddrPortFrom(a, port), l.backlog, l.accept)
		if err != nil {
			l.closeListeners()
			return err
		}
		l.listeners = append(l.listeners, stream)
		port = stream.Addr().Port()
	}
	return nil
}

// closeListeners closes the stream listeners of all addresses.
func (l *listener) closeListeners() {
	for _, stream := range l.listeners {
		_ = stream.Close() // fails only if the net is closed
	}
	l.listeners = nil
}

// accept returns the connection of an incoming stream; nil if the backlog is full.
func (l *listener) accept(remote netip.AddrPort) drive.StreamConn {
	if len(l.starting)+len(l.queue) >= l.backlog {
		l.manager.backlogFull++
		return nil
	}
	c := l.manager.device.nic.Incoming()
	conn := l.manager.newConnection(c, nil, remote, fmt.Sprintf("confirmation of %v", remote))
	conn.listener = l
	l.starting = append(l.starting, conn)
	return conn.engineConn
}

// onStateChange handles a new state of a connection that GetRequest has not returned yet. It queues
// the connection for GetRequest when its MPA Request has arrived, and removes it when it has ended.
func (l *listener) onStateChange(conn *connection) {
	isConn := func(other *connection) bool { return other == conn }
	switch s := conn.engineConn.State(); {
	case s < engine.Requested:
	case s == engine.Requested:
		l.starting = slices.DeleteFunc(l.starting, isConn)
		l.queue = append(l.queue, conn)
		l.cond.Notify()
	default:
		conn.listener = nil
		l.starting = slices.DeleteFunc(l.starting, isConn)
		l.queue = slices.DeleteFunc(l.queue, isConn)
	}
}

func (l *listener) Addr() netip.AddrPort { return l.addr }

// GetRequest implements verbs.Listener: it waits for the next connection with an MPA Request, and
// fails if the listener is closed first.
func (l *listener) GetRequest(timeout time.Duration) (verbs.ConnRequest, error) {
	const op = "get_request"
	if err := l.manager.device.Enter(op, drive.CallWait); err != nil {
		return nil, err
	}
	defer l.manager.device.Leave()
	if err := l.manager.device.Wait(op, l.cond, timeout, func() bool { return len(l.queue) > 0 || l.closed }); err != nil {
		return nil, err
	}
	if l.closed {
		return nil, connError(op, l.addr, verbs.ErrClosed)
	}
	conn := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	conn.listener = nil
	return &request{conn: conn, param: l.manager.peerParam(conn.engineConn)}, nil
}

// Close stops listening, rejects the requests that GetRequest has not returned, and aborts
// connections whose MPA Request has not arrived.
func (l *listener) Close() error {
	return l.manager.device.Control("close_listener", func() error {
		if l.closed {
			return connError("close_listener", l.addr, verbs.ErrClosed)
		}
		l.closed = true
		l.closeListeners()
		for _, conn := range l.queue {
			conn.listener = nil
			_ = conn.engineConn.Reject(l.manager.device.streams.Now(), nil) // the connection may have ended
		}
		for _, conn := range l.starting {
			conn.listener = nil
			conn.engineConn.Abort()
		}
		l.queue, l.starting = nil, nil
		l.cond.Notify()
		return nil
	})
}

// request implements verbs.ConnRequest.
type request struct {
	conn  *connection
	param verbs.ConnParam
}

func (r *request) Remote() netip.AddrPort { return r.conn.remote }

func (r *request) Param() verbs.ConnParam { return r.param }

// checkRequester returns an error if the requester has closed the connection.
func (r *request) checkRequester() error {
	// A connection without a queue pair was not accepted.
	if c := r.conn.engineConn; c.State() > engine.Requested && c.QP() == nil && c.Err() != nil {
		return fmt.Errorf("%w: the requester has closed the connection: %w", verbs.ErrClosed, c.Err())
	}
	return nil
}

// Reject implements verbs.ConnRequest: it sends an MPA Reply with the reject flag, unless the
// requester has closed the connection.
func (r *request) Reject(private []byte) error {
	m := r.conn.manager
	return m.device.Control("reject", func() error {
		err := r.checkRequester()
		if err == nil {
			err = r.conn.engineConn.Reject(m.device.streams.Now(), private)
		}
		if err != nil {
			return connError("reject", r.conn.remote, err)
		}
		return nil
	})
}

// Accept implements verbs.ConnRequest. It connects the queue pair, sends the MPA Reply, and waits
// until the connection is established.
func (r *request) Accept(qp verbs.QP, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "accept"
	m := r.conn.manager
	if err := m.device.Enter(op, drive.CallControl); err != nil {
		return nil, err
	}
	defer m.device.Leave()
	q, err := device.CheckHandle[*queuePair](&m.device.shared, op, "QP", qp)
	if err != nil {
		return nil, err
	}
	err = r.checkRequester()
	if err == nil {
		err = r.conn.engineConn.Accept(m.device.streams.Now(), q.engineQP, engineParam(param))
	}
	if err == nil {
		r.conn.qp = q
		m.device.streams.Pump() // sends the MPA Reply
		err = r.conn.waitEstablished(timeout)
	}
	if err != nil {
		return nil, connError(op, r.conn.remote, err)
	}
	return r.conn, nil
}
