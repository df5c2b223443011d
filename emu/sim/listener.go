package sim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// backlogMax is how many streams wait to be accepted before more are refused,
// unless the listener says that fewer do.
const backlogMax = 1024

// Port numbers given to a dialer or listener that names none.
const (
	firstEphemeral  = 49152
	ephemeralNumber = 1<<16 - firstEphemeral
)

// Listener takes the streams that are dialed to its address.
type Listener struct {
	net     *Net
	port    *Port
	addr    netip.AddrPort
	at      []netip.AddrPort // where it is reached: addr, or each that an unspecified one means
	backlog int
	waiting ring[*Stream]
	hook    hook
	closed  bool
}

// ListenStream listens on an address of one of the ports. Port 0 means any.
func (n *Net) ListenStream(addr netip.AddrPort) (*Listener, error) {
	addr = plainPort(addr)
	p := n.byAddr[addr.Addr()]
	if p == nil {
		return nil, streamErr("listen on", addr, errNoPort)
	}
	return p.listen(addr, backlogMax)
}

// listen listens on one address of the port, or on all of a family.
func (p *Port) listen(addr netip.AddrPort, backlog int) (*Listener, error) {
	if addr.Port() == 0 {
		for range ephemeralNumber {
			l, err := p.listen(netip.AddrPortFrom(addr.Addr(), p.nextEphemeral()), backlog)
			if !errors.Is(err, link.ErrAddrInUse) {
				return l, err
			}
		}
		return nil, streamErr("listen on", addr, fmt.Errorf("every port from %d on: %w", firstEphemeral, link.ErrAddrInUse))
	}
	n := p.net
	l := &Listener{net: n, port: p, addr: addr, backlog: backlog}
	for _, a := range p.cfg.Addrs {
		if a == addr.Addr() || addr.Addr().IsUnspecified() && a.Is4() == addr.Addr().Is4() {
			l.at = append(l.at, netip.AddrPortFrom(a, addr.Port()))
		}
	}
	if len(l.at) == 0 {
		return nil, streamErr("listen on", addr, fmt.Errorf("port %s has %v: %w", p.cfg.Name, p.cfg.Addrs, link.ErrUnreachable))
	}
	for _, a := range l.at {
		if n.listeners[a] != nil {
			return nil, streamErr("listen on", addr, link.ErrAddrInUse)
		}
	}
	for _, a := range l.at {
		n.listeners[a] = l
	}
	p.listening = append(p.listening, l)
	return l, nil
}

func (p *Port) nextEphemeral() uint16 {
	port := firstEphemeral + p.ephemeral%ephemeralNumber
	p.ephemeral++
	return uint16(port)
}

// Addr returns the address listened on.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// OnAccept runs h, in an event, when a stream has come to be accepted.
func (l *Listener) OnAccept(h Handler, arg uint64) { l.hook = hook{h, arg} }

// Accept returns the next stream that was dialed; nil if none waits.
func (l *Listener) Accept() (*Stream, error) {
	if l.closed {
		return nil, streamErr("accept on", l.addr, link.ErrClosed)
	}
	if l.waiting.len() == 0 {
		return nil, nil
	}
	return l.waiting.pop(), nil
}

// Close stops listening and aborts the streams that nobody accepted.
func (l *Listener) Close() error {
	if l.closed {
		return streamErr("close of", l.addr, link.ErrClosed)
	}
	l.closed = true
	for _, a := range l.at {
		delete(l.net.listeners, a)
	}
	if i := slices.Index(l.port.listening, l); i >= 0 {
		l.port.listening = slices.Delete(l.port.listening, i, i+1)
	}
	for l.waiting.len() > 0 {
		_ = l.waiting.pop().Abort(l.net.w.now)
	}
	return nil
}

// DialStream starts a stream from an address of one of the ports to a listener's.
// Port 0 in local means any. It does not wait: the stream is connected, or has
// failed, when OnWritable is run.
func (n *Net) DialStream(local, remote netip.AddrPort) (*Stream, error) {
	local, remote = plainPort(local), plainPort(remote)
	p, far := n.byAddr[local.Addr()], n.byAddr[remote.Addr()]
	switch {
	case p == nil:
		return nil, streamErr("dial from", local, errNoPort)
	case far == nil:
		return nil, streamErr("dial to", remote, errNoPort)
	case local.Addr().Is4() != remote.Addr().Is4():
		return nil, streamErr("dial to", remote, fmt.Errorf("from %v: not the same IP version", local))
	}
	local, err := p.dialFrom(local, remote)
	if err != nil {
		return nil, err
	}
	n.dialed++
	s := n.newStream(p, far, local, remote, n.dialed, true)
	s.transmit(s.newSegment(segmentSyn))
	return s, nil
}

// dialFrom finds a port number if local has none.
func (p *Port) dialFrom(local, remote netip.AddrPort) (netip.AddrPort, error) {
	if local.Port() != 0 {
		if p.hasStream(local, remote) {
			return local, streamErr("dial from", local, fmt.Errorf("to %v: %w", remote, link.ErrAddrInUse))
		}
		return local, nil
	}
	for range ephemeralNumber {
		fresh := p.ephemeral < ephemeralNumber // nobody can have got it before
		a := netip.AddrPortFrom(local.Addr(), p.nextEphemeral())
		if fresh || !p.hasStream(a, remote) {
			return a, nil
		}
	}
	return local, streamErr("dial from", local, fmt.Errorf("every port from %d on to %v: %w", firstEphemeral, remote, link.ErrAddrInUse))
}

func (p *Port) hasStream(local, remote netip.AddrPort) bool {
	return slices.ContainsFunc(p.streams, func(s *Stream) bool { return s.local == local && s.remote == remote })
}

// errNoPort is link.ErrUnreachable as it is where addresses belong to ports.
var errNoPort = fmt.Errorf("no port has the address: %w", link.ErrUnreachable)

func plainPort(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(plain(a.Addr()), a.Port()) }

func (n *Net) newStream(p, far *Port, local, remote netip.AddrPort, conn int, dialer bool) *Stream {
	s := &Stream{
		net: n, port: p, local: local, remote: remote, conn: conn,
		window: n.cfg.Stream.BufferBytes,
	}
	ip := link.IPv6HeaderLen
	if local.Addr().Is4() {
		ip = link.IPv4HeaderLen
	}
	mtu := min(p.cfg.Link.MTU, far.cfg.Link.MTU)
	n.path(p.sw, far.sw, flowHash(local, remote), func(w *way) { mtu = min(mtu, w.trunk.cfg.Link.MTU) })
	s.mss = mtu - ip - tcpHeaderLen
	s.retry.init(n.w, (*retransmission)(s), 0)
	side := "listener"
	if dialer {
		side = "dialer"
	}
	s.initChance(fmt.Sprintf("%s/stream%d/%s", n.cfg.Name, conn, side))
	for _, e := range n.cfg.Stream.Events {
		if (e.Conn == 0 || e.Conn == conn) && e.FromListener == !dialer {
			s.events = append(s.events, e)
		}
	}
	slices.SortStableFunc(s.events, func(a, b StreamEvent) int {
		return cmp.Compare(a.Offset, b.Offset)
	})
	p.streams = append(p.streams, s)
	return s
}

// accept makes the listening end of the stream that s dialed, or refuses it.
func (n *Net) accept(s *Stream, syn *segment) {
	n.tapSegment(s.farPort(), In, syn)
	l := n.listeners[s.remote]
	if l == nil || l.waiting.len() >= l.backlog {
		s.tapAnswer(Out, s.farPort())
		n.w.At(n.w.now.Add(s.returnLatency()), (*refusal)(s), 0)
		return
	}
	end := n.newStream(l.port, s.port, s.remote, s.local, s.conn, false)
	end.open = true
	end.rcvd = 1
	end.peer, s.peer = s, end
	end.transmit(end.newSegment(segmentAccept))
	l.waiting.push(end)
	l.hook.call(n.w.now)
}

// refusal tells a dialer that nobody listened.
type refusal Stream

func (h *refusal) HandleEvent(mono.Time, uint64) {
	s := (*Stream)(h)
	s.tapAnswer(In, s.port)
	s.fail(link.ErrRefused)
}

// establish is the dialer learning that its stream was accepted.
func (s *Stream) establish(now mono.Time) {
	s.open = true
	if s.finQueued {
		s.sendFin()
	}
	s.writable.call(now)
}

// broken is a sender learning, one way later, that its peer is gone.
type broken Stream

func (h *broken) HandleEvent(mono.Time, uint64) {
	s := (*Stream)(h)
	s.tapAnswer(In, s.port)
	s.fail(link.ErrReset)
}

func (s *Stream) breakAfterReturn() {
	w := s.net.w
	s.tapAnswer(Out, s.farPort())
	w.At(w.now.Add(s.returnLatency()), (*broken)(s), 0)
}
