package sim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
)

// maxBacklog limits the accept queue of a listener.
const maxBacklog = 1024

// Ephemeral port range.
const (
	firstEphemeral = 49152
	ephemeralCount = 1<<16 - firstEphemeral
)

// Listener accepts the streams dialed to its address.
type Listener struct {
	net         *Net
	port        *Port
	addr        netip.AddrPort
	boundAddrs  []netip.AddrPort // addr, or each address that the unspecified address stands for
	backlog     int
	acceptQueue nic.FIFO[*Stream]
	onAccept    callback
	closed      bool
}

// ListenStream listens on an address of one of the ports. Port 0 means any.
func (n *Net) ListenStream(addr netip.AddrPort) (*Listener, error) {
	addr = canonicalAddrPort(addr)
	p := n.byAddr[addr.Addr()]
	if p == nil {
		return nil, addrError("listen on", addr, errNoPort)
	}
	return p.listen(addr, maxBacklog)
}

// listen listens on one address of the port, or on all of a family if addr is unspecified. Port
// number 0 means any.
func (p *Port) listen(addr netip.AddrPort, backlog int) (*Listener, error) {
	if addr.Port() == 0 {
		for range ephemeralCount {
			l, err := p.listen(netip.AddrPortFrom(addr.Addr(), p.nextEphemeral()), backlog)
			if !errors.Is(err, link.ErrAddrInUse) {
				return l, err
			}
		}
		return nil, addrError("listen on", addr, fmt.Errorf("every port from %d on: %w", firstEphemeral, link.ErrAddrInUse))
	}
	n := p.net
	l := &Listener{net: n, port: p, addr: addr, backlog: backlog}
	for _, a := range p.cfg.Addrs {
		if a == addr.Addr() || addr.Addr().IsUnspecified() && a.Is4() == addr.Addr().Is4() {
			l.boundAddrs = append(l.boundAddrs, netip.AddrPortFrom(a, addr.Port()))
		}
	}
	if len(l.boundAddrs) == 0 {
		return nil, addrError("listen on", addr, fmt.Errorf("port %s has %v: %w", p.cfg.Name, p.cfg.Addrs, link.ErrUnreachable))
	}
	for _, a := range l.boundAddrs {
		if n.listeners[a] != nil {
			return nil, addrError("listen on", addr, link.ErrAddrInUse)
		}
	}
	for _, a := range l.boundAddrs {
		n.listeners[a] = l
	}
	p.listeners = append(p.listeners, l)
	return l, nil
}

// nextEphemeral returns the next port number of the ephemeral range, in turn.
func (p *Port) nextEphemeral() uint16 {
	port := firstEphemeral + p.ephemeralUsed%ephemeralCount
	p.ephemeralUsed++
	return uint16(port)
}

// Addr returns the address listened on.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// OnAccept runs h, in an event, when a stream has entered the accept queue.
func (l *Listener) OnAccept(h Handler, arg uint64) { l.onAccept = callback{h, arg} }

// Accept returns the next stream of the accept queue; nil if it is empty.
func (l *Listener) Accept() (*Stream, error) {
	if l.closed {
		return nil, addrError("accept on", l.addr, link.ErrClosed)
	}
	s, _ := l.acceptQueue.Pop()
	return s, nil
}

// Close stops listening and aborts the streams in the accept queue.
func (l *Listener) Close() error {
	if l.closed {
		return addrError("close of", l.addr, link.ErrClosed)
	}
	l.closed = true
	for _, a := range l.boundAddrs {
		delete(l.net.listeners, a)
	}
	l.port.listeners = remove(l.port.listeners, l)
	for s, ok := l.acceptQueue.Pop(); ok; s, ok = l.acceptQueue.Pop() {
		_ = s.Abort(l.net.w.now)
	}
	return nil
}

// DialStream starts to connect an address of one of the ports to a listener. Port 0 in local means
// any. It does not block: OnWritable is called when the stream is connected or has failed.
func (n *Net) DialStream(local, remote netip.AddrPort) (*Stream, error) {
	local, remote = canonicalAddrPort(local), canonicalAddrPort(remote)
	p, far := n.byAddr[local.Addr()], n.byAddr[remote.Addr()]
	switch {
	case p == nil:
		return nil, addrError("dial from", local, errNoPort)
	case far == nil:
		return nil, addrError("dial to", remote, errNoPort)
	case local.Addr().Is4() != remote.Addr().Is4():
		return nil, addrError("dial to", remote, fmt.Errorf("from %v: not the same IP version", local))
	}
	local, err := p.dialFrom(local, remote)
	if err != nil {
		return nil, err
	}
	n.dialed++
	s := &Stream{net: n, port: p, local: local, remote: remote, conn: n.dialed}
	s.init(far, dialerSide)
	s.transmit(s.newSegment(segmentSyn))
	return s, nil
}

// dialFrom returns the local address of a new stream: local, with an ephemeral port if it has port
// 0. It fails if a stream between these addresses exists.
func (p *Port) dialFrom(local, remote netip.AddrPort) (netip.AddrPort, error) {
	if local.Port() != 0 {
		if p.hasStream(local, remote) {
			return local, addrError("dial from", local, fmt.Errorf("to %v: %w", remote, link.ErrAddrInUse))
		}
		return local, nil
	}
	for range ephemeralCount {
		neverUsed := p.ephemeralUsed < ephemeralCount // saves the search for a stream
		a := netip.AddrPortFrom(local.Addr(), p.nextEphemeral())
		if neverUsed || !p.hasStream(a, remote) {
			return a, nil
		}
	}
	return local, addrError("dial from", local, fmt.Errorf("every port from %d on to %v: %w", firstEphemeral, remote, link.ErrAddrInUse))
}

// hasStream reports whether the port has a stream between two addresses.
func (p *Port) hasStream(local, remote netip.AddrPort) bool {
	return slices.ContainsFunc(p.streams, func(s *Stream) bool { return s.local == local && s.remote == remote })
}

// errNoPort is link.ErrUnreachable for an address that no port has.
var errNoPort = fmt.Errorf("no port has the address: %w", link.ErrUnreachable)

func canonicalAddrPort(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(canonical(a.Addr()), a.Port())
}

const dialerSide, listenerSide = "dialer", "listener"

// init adds a side of a stream to its port, with its window, MSS, StreamEvents and random number
// generators. far is the peer's port.
func (s *Stream) init(far *Port, side string) {
	n, p := s.net, s.port
	s.window = n.cfg.Stream.BufferBytes
	mtu := min(p.cfg.Link.MTU, far.cfg.Link.MTU)
	n.walkPath(p.sw, far.sw, flowHash(s.local, s.remote), func(w *trunkDir) { mtu = min(mtu, w.cfg.MTU) })
	s.mss = mtu - s.headerBytes()
	s.retryTimer.init(n.w, (*retryHandler)(s), 0)
	s.initRands(fmt.Sprintf("%s/stream%d/%s", n.cfg.Name, s.conn, side))
	for _, e := range n.cfg.Stream.Events {
		if (e.Conn == 0 || e.Conn == s.conn) && e.FromListener == (side == listenerSide) {
			s.events = append(s.events, e)
		}
	}
	slices.SortStableFunc(s.events, func(a, b StreamEvent) int {
		return cmp.Compare(a.Offset, b.Offset)
	})
	p.streams = append(p.streams, s)
}

// accept creates the listening end of the stream that s dialed, or refuses it.
func (n *Net) accept(s *Stream, syn *segment) {
	n.tapSegment(s.farPort(), In, syn)
	l := n.listeners[s.remote]
	if l == nil || l.acceptQueue.Len() >= l.backlog {
		s.resetByPeer(link.ErrRefused)
		return
	}
	end := &Stream{net: n, port: l.port, local: s.remote, remote: s.local, conn: s.conn, open: true, peer: s}
	end.init(s.port, listenerSide)
	end.rcvNxt = 1 // after the SYN
	s.peer = end
	end.transmit(end.newSegment(segmentSynAck))
	l.acceptQueue.Push(end)
	l.onAccept.call(n.w.now)
}

// resetByPeer lets the peer's port answer s with an RST. When it arrives, s fails with err.
func (s *Stream) resetByPeer(err error) {
	s.tapReset(Out, s.farPort())
	s.net.w.AfterFunc(s.returnLatency(), func() {
		s.tapReset(In, s.port)
		s.fail(err)
	})
}
