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

// backlogMax is how many streams wait to be accepted before more are refused.
const backlogMax = 1024

// firstEphemeral is the first port number given to a dialer that names none.
const firstEphemeral = 49152

// Listener takes the streams that are dialed to its address.
type Listener struct {
	net     *Net
	port    *Port
	addr    netip.AddrPort
	waiting ring[*Stream]
	hook    hook
	closed  bool
}

// ListenStream listens on an address of one of the ports.
func (n *Net) ListenStream(addr netip.AddrPort) (*Listener, error) {
	addr = netip.AddrPortFrom(plain(addr.Addr()), addr.Port())
	p := n.byAddr[addr.Addr()]
	switch {
	case p == nil:
		return nil, streamErr("listen on", addr, ErrUnreachable)
	case addr.Port() == 0:
		return nil, streamErr("listen on", addr, errors.New("port 0: name the port"))
	case n.listeners[addr] != nil:
		return nil, streamErr("listen on", addr, errors.New("the address is in use"))
	}
	l := &Listener{net: n, port: p, addr: addr}
	n.listeners[addr] = l
	p.listening = append(p.listening, addr)
	return l, nil
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
	delete(l.net.listeners, l.addr)
	if i := slices.Index(l.port.listening, l.addr); i >= 0 {
		l.port.listening = slices.Delete(l.port.listening, i, i+1)
	}
	for l.waiting.len() > 0 {
		_ = l.waiting.pop().Abort()
	}
	return nil
}

// DialStream starts a stream from an address of one of the ports to a listener's.
// Port 0 in local means any. It does not wait: the stream is connected, or has
// failed, when OnWritable is run.
func (n *Net) DialStream(local, remote netip.AddrPort) (*Stream, error) {
	local = netip.AddrPortFrom(plain(local.Addr()), local.Port())
	remote = netip.AddrPortFrom(plain(remote.Addr()), remote.Port())
	p, far := n.byAddr[local.Addr()], n.byAddr[remote.Addr()]
	switch {
	case p == nil:
		return nil, streamErr("dial from", local, ErrUnreachable)
	case far == nil:
		return nil, streamErr("dial to", remote, ErrUnreachable)
	case local.Addr().Is4() != remote.Addr().Is4():
		return nil, streamErr("dial to", remote, fmt.Errorf("from %v: not the same IP version", local))
	}
	if local.Port() == 0 {
		local = netip.AddrPortFrom(local.Addr(), firstEphemeral+p.ephemeral)
		p.ephemeral = (p.ephemeral + 1) % (1<<16 - firstEphemeral)
	}
	n.dialed++
	s := n.newStream(p, far, local, remote, n.dialed, true)
	s.transmit(s.newSegment(segmentSyn))
	return s, nil
}

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
func (n *Net) accept(s *Stream) {
	l := n.listeners[s.remote]
	if l == nil || l.waiting.len() >= backlogMax {
		n.w.At(n.w.now.Add(s.returnLatency()), (*refusal)(s), 0)
		return
	}
	end := n.newStream(l.port, s.port, s.remote, s.local, s.conn, false)
	end.open = true
	end.peer, s.peer = s, end
	end.transmit(end.newSegment(segmentAccept))
	l.waiting.push(end)
	l.hook.call(n.w.now)
}

// refusal tells a dialer that nobody listened.
type refusal Stream

func (h *refusal) HandleEvent(mono.Time, uint64) { (*Stream)(h).fail(ErrRefused) }

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

func (h *broken) HandleEvent(mono.Time, uint64) { (*Stream)(h).fail(link.ErrReset) }

func (s *Stream) breakAfterReturn() {
	w := s.net.w
	w.At(w.now.Add(s.returnLatency()), (*broken)(s), 0)
}
