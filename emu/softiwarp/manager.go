package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// manager implements verbs.CM with MPA start-up frames. The engine holds the connections.
type manager struct {
	device      *Device
	backlogFull uint64 // streams rejected because a backlog was full
	fallbacks   uint64 // connects that were retried with RFC 5044
}

// deliverChanges calls onStateChange of each verbs connection whose engine connection has a new
// state. It reports whether there were any.
func (m *manager) deliverChanges() (changed bool) {
	for {
		c, ok := m.device.nic.NextChanged()
		if !ok {
			return changed
		}
		changed = true
		c.Owner.(*connection).onStateChange()
	}
}

// Connect implements verbs.CM. If the peer closes the connection after an enhanced Request
// (RFC 6581), Connect retries with a Request of RFC 5044.
func (m *manager) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "connect"
	if err := m.device.Enter(op, drive.CallControl); err != nil {
		return nil, err
	}
	defer m.device.Leave()
	q, err := device.CheckHandle[*queuePair](&m.device.shared, op, "QP", qp)
	if err != nil {
		return nil, err
	}
	deadline := mono.Never
	if timeout >= 0 { // not verbs.Forever
		deadline = m.device.streams.Now().Add(timeout)
	}
	p := engineParam(param)
	conn, err := m.connect(q, addr, p, deadline)
	if err != nil && conn != nil && conn.engineConn.Fallback {
		m.fallbacks++
		p.Revision = wire.RevisionRFC5044
		conn, err = m.connect(q, addr, p, deadline)
	}
	if err != nil {
		return nil, connError(op, addr, err)
	}
	return conn, nil
}

// connect makes one attempt to connect, until the deadline. If it returns both a connection and an
// error, the connection has ended; its engine.Conn.Fallback then reports whether Connect may retry.
func (m *manager) connect(q *queuePair, addr netip.AddrPort, p engine.ConnParam, deadline mono.Time) (*connection, error) {
	local, err := m.localAddr(addr.Addr())
	if err != nil {
		return nil, err
	}
	c, err := m.device.nic.Connect(q.engineQP, p)
	if err != nil {
		return nil, err
	}
	conn := m.newConnection(c, q, addr, fmt.Sprintf("connection to %v", addr))
	if err := m.device.streams.Dial(conn.engineConn, netip.AddrPortFrom(local, 0), addr); err != nil {
		c.Abort()
		return nil, err
	}
	m.device.streams.Pump() // starts the connection
	left := verbs.Forever
	if deadline != mono.Never {
		left = max(0, deadline.Sub(m.device.streams.Now()))
	}
	return conn, conn.waitEstablished(left)
}

// localAddr returns the device's first address of the same family as the peer's.
func (m *manager) localAddr(peer netip.Addr) (netip.Addr, error) {
	for _, a := range m.device.addrs.Present() {
		if a.Is4() == peer.Unmap().Is4() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: the device has no address of the family of %v", verbs.ErrNotFound, peer)
}

// Resolve fails: iWARP has no datagram QPs.
func (m *manager) Resolve(netip.AddrPort, []byte, time.Duration) (verbs.DatagramPeer, error) {
	return verbs.DatagramPeer{}, m.device.Unsupported("resolve", "datagrams")
}

// engineParam converts the parameters of the application. IRD and ORD are the iWARP names of
// responder resources and initiator depth.
func engineParam(p verbs.ConnParam) engine.ConnParam {
	return engine.ConnParam{IRD: uint16(p.ResponderResources), ORD: uint16(p.InitiatorDepth), PrivateData: p.PrivateData}
}

// peerParam returns the parameters of the peer's start-up frame. Depths that are not
// negotiated are the limit of the device.
func (m *manager) peerParam(c *engine.Conn) verbs.ConnParam {
	peer, limit := c.Peer, m.device.nic.Config().Limits.RdAtomic
	depth := func(n uint16) uint8 {
		if !peer.Enhanced || n == wire.DepthNotNegotiated {
			return limit
		}
		return uint8(min(n, 255))
	}
	return verbs.ConnParam{PrivateData: c.PrivateData, ResponderResources: depth(peer.PeerIRD), InitiatorDepth: depth(peer.PeerORD)}
}

// connError adds the operation and the address, that of the peer or of a listener, to an error. It
// maps errors of package link to those of verbs.
func connError(op string, addr netip.AddrPort, err error) error {
	for _, pair := range []struct{ link, verbs error }{
		{link.ErrAddrInUse, verbs.ErrBusy},
		{link.ErrLimit, verbs.ErrNoMemory},
		{link.ErrUnreachable, verbs.ErrNotFound},
		{link.ErrClosed, verbs.ErrClosed},
	} {
		if errors.Is(err, pair.link) {
			err = fmt.Errorf("%w: %w", pair.verbs, err)
			break
		}
	}
	return &verbs.OpError{Op: op, Obj: addr.String(), Err: err}
}
