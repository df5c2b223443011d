package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// manager is the device's verbs.CM: MPA's start-up frames are its messages, and
// the engine keeps its connections.
type manager struct {
	d           *Device
	backlogFull uint64 // streams for which a listener had no place
	fallbacks   uint64 // connects tried again without enhancements
}

func (m *manager) init(d *Device) { m.d = d }

func (m *manager) counters() []verbs.Counter {
	return []verbs.Counter{
		{Name: "cm_backlog_full", Value: m.backlogFull},
		{Name: "cm_fallbacks", Value: m.fallbacks},
	}
}

// hear tells connections and listeners what has become of the engine's. It
// reports whether there was news.
func (m *manager) deliverChanges() (news bool) {
	for {
		c, ok := m.d.nic.NextChanged()
		if !ok {
			return news
		}
		news = true
		c.Owner.(*connection).onStateChange()
	}
}

// Connect connects qp to the listener at addr. Where the peer hangs up on an
// enhanced Request it may be one that does not know those: it is asked once more,
// in the words of RFC 5044.
func (m *manager) Connect(qp verbs.QP, addr netip.AddrPort, param verbs.ConnParam, timeout time.Duration) (verbs.Conn, error) {
	const op = "connect"
	if err := m.d.Enter(op, drive.CallControl); err != nil {
		return nil, err
	}
	defer m.d.Leave()
	q, err := device.CheckHandle[*queuePair](&m.d.shared, op, "QP", qp)
	if err != nil {
		return nil, err
	}
	until := mono.Never
	if timeout >= 0 {
		until = m.d.streams.Now().Add(timeout)
	}
	p := engineParam(param)
	x, err := m.connect(q, addr, p, until)
	if err != nil && x != nil && x.c.Fallback() {
		m.fallbacks++
		p.Revision = wire.RevisionRFC5044
		x, err = m.connect(q, addr, p, until)
	}
	if err != nil {
		return nil, connError(op, addr, err)
	}
	return x, nil
}

// connect makes one attempt. The connection it returns with an error is over.
func (m *manager) connect(q *queuePair, addr netip.AddrPort, p engine.ConnParam, until mono.Time) (*connection, error) {
	local, err := m.localAddr(addr.Addr())
	if err != nil {
		return nil, err
	}
	c, err := m.d.nic.Connect(q.q, p)
	if err != nil {
		return nil, err
	}
	x := m.newConnection(c, q, addr, fmt.Sprintf("connection to %v", addr))
	if err := m.d.streams.Dial(x.wire, netip.AddrPortFrom(local, 0), addr); err != nil {
		c.Abort()
		return nil, err
	}
	m.d.streams.Pump()
	left := verbs.Forever
	if until != mono.Never {
		left = max(0, until.Sub(m.d.streams.Now()))
	}
	return x, x.waitEstablished(left)
}

// local chooses our address towards a peer.
func (m *manager) localAddr(peer netip.Addr) (netip.Addr, error) {
	for _, a := range m.d.addrs.Present() {
		if a.Is4() == peer.Unmap().Is4() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: no address of the device's reaches %v", verbs.ErrNotFound, peer)
}

// Resolve fails: iWARP has no datagram QPs to ask for.
func (m *manager) Resolve(netip.AddrPort, []byte, time.Duration) (verbs.DatagramPeer, error) {
	return verbs.DatagramPeer{}, m.d.unsupported("resolve", "datagrams")
}

// ours is what a program says of its side, in iWARP's words.
func engineParam(p verbs.ConnParam) engine.ConnParam {
	return engine.ConnParam{IRD: uint16(p.ResponderResources), ORD: uint16(p.InitiatorDepth), PrivateData: p.PrivateData}
}

// theirs is what the peer's start-up frame said. Of depths that it left open the
// device has as many as it can.
func (m *manager) peerParam(c *engine.Conn) verbs.ConnParam {
	peer, limit := c.Peer(), m.d.nic.Config().Limits.RdAtomic
	depth := func(n uint16) uint8 {
		if !peer.Enhanced || n == wire.DepthNotNegotiated {
			return limit
		}
		return uint8(min(n, 255))
	}
	return verbs.ConnParam{PrivateData: c.PrivateData(), ResponderResources: depth(peer.PeerIRD), InitiatorDepth: depth(peer.PeerORD)}
}

// connError names the peer in an error, and says in the words of verbs what the
// network said.
func connError(op string, addr netip.AddrPort, err error) error {
	for _, w := range []struct{ said, means error }{
		{link.ErrAddrInUse, verbs.ErrBusy},
		{link.ErrLimit, verbs.ErrNoMemory},
		{link.ErrUnreachable, verbs.ErrNotFound},
		{link.ErrClosed, verbs.ErrClosed},
	} {
		if errors.Is(err, w.said) {
			err = fmt.Errorf("%w: %w", w.means, err)
			break
		}
	}
	return &verbs.OpError{Op: op, Obj: addr.String(), Err: err}
}
