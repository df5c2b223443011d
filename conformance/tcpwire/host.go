package tcpwire

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Wire carries IP packets. What it is given back of the time is not looked at.
type Wire interface {
	Send(packet []byte) error
	// Recv returns the next packet, or verbs.ErrTimeout.
	Recv(timeout time.Duration) (conformance.Frame, error)
}

// Config describes a host. Wire, Addr and MTU are needed.
type Config struct {
	Wire Wire
	// Addr is where the host is, which the wire answers for.
	Addr netip.Addr
	// MTU is the longest IP packet of the wire.
	MTU int
	// MSS is what connections announce that are not shaped otherwise; what the MTU gives
	// if 0.
	MSS int
	// Waiting, if not nil, is told what somebody begins to wait for, and returns whom to
	// tell when he has ended.
	Waiting func(what string) (done func())
	// End ends all waiting when it is closed; nil for never.
	End <-chan struct{}
}

// Host is TCP at an address.
type Host struct {
	cfg     Config
	stopped chan struct{} // the reader is to stop
	ended   chan struct{} // it has

	mu        sync.Mutex
	err       error         // of the wire: nothing goes any more
	news      chan struct{} // closed when something happens, and replaced
	shape     conformance.TCPShape
	conns     map[netip.AddrPort]map[uint16]*conn // by the other end, and our port
	listeners map[uint16]*listener
	lastPort  uint16
}

var _ conformance.Segments = (*Host)(nil)

const (
	firstPort = 49152
	backlog   = 128
	// pace is how long the reader does not look at the timers.
	pace = 10 * time.Millisecond
)

// New returns a host that runs until it is closed.
func New(cfg Config) *Host {
	if cfg.Waiting == nil {
		cfg.Waiting = func(string) func() { return func() {} }
	}
	h := &Host{
		cfg: cfg, stopped: make(chan struct{}), ended: make(chan struct{}), news: make(chan struct{}),
		conns: make(map[netip.AddrPort]map[uint16]*conn), listeners: make(map[uint16]*listener), lastPort: firstPort + uint16(rand.N(8192)),
	}
	go h.run()
	return h
}

// Close breaks what is open and ends the host. The wire stays as it is.
func (h *Host) Close() {
	h.mu.Lock()
	for _, ports := range h.conns {
		for _, c := range ports {
			c.breakOff(net.ErrClosed)
		}
	}
	h.fail(net.ErrClosed)
	h.mu.Unlock()
	close(h.stopped)
	<-h.ended
}

// Shape implements conformance.Segments.
func (h *Host) Shape(s conformance.TCPShape) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shape = s
}

// fail ends everything: what is waited for will not come.
func (h *Host) fail(err error) {
	if h.err == nil {
		h.err = err
	}
	h.changed()
}

// changed wakes whoever waits.
func (h *Host) changed() {
	close(h.news)
	h.news = make(chan struct{})
}

// run reads the wire, and has the timers of connections run out.
func (h *Host) run() {
	defer close(h.ended)
	for {
		select {
		case <-h.stopped:
			return
		default:
		}
		f, err := h.cfg.Wire.Recv(pace)
		h.mu.Lock()
		switch {
		case err == nil:
			h.take(f.Packet)
		case !errors.Is(err, verbs.ErrTimeout):
			h.fail(err)
		}
		h.tick()
		h.mu.Unlock()
	}
}

// tick has the timers of all connections run out that have. Connections that are broken
// are forgotten.
func (h *Host) tick() {
	now := time.Now()
	for remote, ports := range h.conns {
		for port, c := range ports {
			c.tick(now)
			if c.err != nil {
				delete(ports, port)
				h.changed()
			}
		}
		if len(ports) == 0 {
			delete(h.conns, remote)
		}
	}
}

// take looks at a packet.
func (h *Host) take(packet []byte) {
	s, err := parse(packet)
	if err != nil || s.dst.Addr() != h.cfg.Addr {
		return // nobody's, or what no TCP would take either
	}
	now := time.Now()
	c := h.conns[s.src][s.dst.Port()]
	switch l := h.listeners[s.dst.Port()]; {
	case c != nil:
		was := c.established
		c.handle(now, &s)
		if !was && c.established && l != nil && l.expects(c) {
			l.ready = append(l.ready, c)
		}
		h.changed()
	case l != nil && s.flags&(syn|ack|rst) == syn && len(l.coming)+len(l.ready) < backlog:
		c = h.newConn(s.dst, s.src)
		l.coming = append(l.coming, c)
		c.greet(&s)
		c.open(now, h.first())
	default:
		h.refuse(&s)
	}
}

// refuse tells who speaks to nobody.
func (h *Host) refuse(s *segment) {
	if s.flags&rst != 0 {
		return
	}
	r := segment{src: s.dst, dst: s.src, flags: rst}
	if s.flags&ack != 0 {
		r.seq = s.ack
	} else {
		r.flags, r.ack = rst|ack, s.seq.add(s.len())
	}
	h.send(&r)
}

func (h *Host) send(s *segment) {
	if err := h.cfg.Wire.Send(s.packet()); err != nil {
		h.fail(fmt.Errorf("send %v: %w", s, err))
	}
}

// newConn makes a connection known.
func (h *Host) newConn(local, remote netip.AddrPort) *conn {
	c := &conn{local: local, remote: remote, out: h.send, announce: h.mss(), mss: 1}
	if h.conns[remote] == nil {
		h.conns[remote] = make(map[uint16]*conn)
	}
	h.conns[remote][local.Port()] = c
	return c
}

// first is the sequence number of our next SYN.
func (h *Host) first() seq {
	if h.shape.First != nil {
		return seq(*h.shape.First)
	}
	return seq(rand.Uint32())
}

// mss is what we announce.
func (h *Host) mss() int {
	switch {
	case h.shape.MSS != 0:
		return h.shape.MSS
	case h.cfg.MSS != 0:
		return h.cfg.MSS
	}
	return h.fits()
}

// fits is what the wire carries in a segment.
func (h *Host) fits() int {
	if h.cfg.Addr.Is4() {
		return h.cfg.MTU - 20 - headerLen
	}
	return h.cfg.MTU - 40 - headerLen
}

// port is one that nobody has.
func (h *Host) port(remote netip.AddrPort) (uint16, error) {
	for range 1 << 14 {
		if h.lastPort++; h.lastPort < firstPort {
			h.lastPort = firstPort
		}
		if h.conns[remote][h.lastPort] == nil && h.listeners[h.lastPort] == nil {
			return h.lastPort, nil
		}
	}
	return 0, errors.New("no TCP port is free")
}

// open are the connections that there are, for tests.
func (h *Host) open() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ports := range maps.Values(h.conns) {
		n += len(ports)
	}
	return n
}

// await waits until done says so, with h.mu held whenever it is called. It returns
// verbs.ErrTimeout if that takes too long.
func (h *Host) await(what string, timeout time.Duration, done func() bool) error {
	defer h.cfg.Waiting(what)()
	var late <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		late = t.C
	}
	for {
		h.mu.Lock()
		ok, err, news := done(), h.err, h.news
		h.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-news:
		case <-h.cfg.End:
			return net.ErrClosed
		case <-late:
			h.mu.Lock()
			ok := done()
			h.mu.Unlock()
			if ok {
				return nil
			}
			return fmt.Errorf("no %s: %w", what, verbs.ErrTimeout)
		}
	}
}
