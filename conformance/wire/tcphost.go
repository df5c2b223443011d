package wire

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// TCPConfig describes a [TCPHost]. Wire, Addr and MTU are required.
type TCPConfig struct {
	Wire conformance.Wire
	// Addr is the host's address, for which the wire answers.
	Addr netip.Addr
	// MTU is the largest IP packet of the wire.
	MTU int
	// MSS is the announced MSS unless TCPOptions has one; 0 derives it from the MTU.
	MSS int
	// OnWait, if not nil, is called before a method blocks, and its result afterwards.
	OnWait func(what string) (done func())
	// Done, when closed, ends all blocked calls; it may be nil.
	Done <-chan struct{}
}

// TCPHost is a TCP host with one address, on a wire that carries whole IP packets. A case sees
// each segment of a device, and controls which octets the host sends in which segment, in which
// order and how often ([conformance.RawStream]), as well as the initial sequence number and the
// MSS. Everything else follows RFC 9293.
//
// It has active and passive open, retransmission with backoff and after three duplicate
// acknowledgements, a receive window, FIN and RST in both directions, and reassembly. It has no
// congestion control, since the network is one link, and no window scaling, SACK or timestamps: a
// full segment carries MSS octets. It shares no code with other TCP implementations.
//
// It is safe for concurrent use; Close ends its goroutine. The connection itself (tcpConn) has
// no clock, socket or goroutine: time and segments go in, segments come out.
type TCPHost struct {
	cfg        TCPConfig
	stop       chan struct{} // closed to stop the reader
	readerDone chan struct{} // closed when the reader has ended

	mu        sync.Mutex
	err       error         // fatal error of the wire
	change    chan struct{} // closed and replaced when the state changes
	options   conformance.TCPOptions
	conns     map[netip.AddrPort]map[uint16]*tcpConn // by remote address and local port
	listeners map[uint16]*tcpListener
	lastPort  uint16
}

var _ conformance.RawTCP = (*TCPHost)(nil)

const (
	firstPort  = 49152
	tcpBacklog = 128
	// pollInterval is the longest time between two checks of the timers.
	pollInterval = 10 * time.Millisecond
)

// NewTCPHost returns a host that runs TCP over cfg.Wire until it is closed.
func NewTCPHost(cfg TCPConfig) *TCPHost {
	if cfg.OnWait == nil {
		cfg.OnWait = func(string) func() { return func() {} }
	}
	// A random first port, since the device may remember the connections of an earlier host.
	portOffset := uint16(rand.N(8192))
	h := &TCPHost{
		cfg: cfg, stop: make(chan struct{}), readerDone: make(chan struct{}), change: make(chan struct{}),
		conns: make(map[netip.AddrPort]map[uint16]*tcpConn), listeners: make(map[uint16]*tcpListener), lastPort: firstPort + portOffset,
	}
	go h.run()
	return h
}

// Close aborts open connections and ends the host. It does not close the wire.
func (h *TCPHost) Close() {
	h.mu.Lock()
	for _, ports := range h.conns {
		for _, c := range ports {
			c.abort(net.ErrClosed)
		}
	}
	h.fail(net.ErrClosed)
	h.mu.Unlock()
	close(h.stop)
	<-h.readerDone
}

// SetOptions implements conformance.RawTCP. The options apply to later connections.
func (h *TCPHost) SetOptions(o conformance.TCPOptions) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.options = o
}

// fail ends the host: all calls that wait, and later ones, return the error of the first fail.
func (h *TCPHost) fail(err error) {
	if h.err == nil {
		h.err = err
	}
	h.notify()
}

// notify wakes all waiters.
func (h *TCPHost) notify() {
	close(h.change)
	h.change = make(chan struct{})
}

// run reads the wire and runs the timers of the connections, until Close or an error of the wire.
func (h *TCPHost) run() {
	defer close(h.readerDone)
	for {
		select {
		case <-h.stop:
			return
		default:
		}
		f, err := h.cfg.Wire.Recv(pollInterval)
		h.mu.Lock()
		switch {
		case err == nil:
			h.handlePacket(f.Packet)
		case !errors.Is(err, verbs.ErrTimeout):
			h.fail(err)
		}
		h.tick()
		failed := h.err != nil
		h.mu.Unlock()
		if failed {
			return
		}
	}
}

// tick runs expired timers, and removes connections that have ended.
func (h *TCPHost) tick() {
	now := time.Now()
	for remote, ports := range h.conns {
		for port, c := range ports {
			c.tick(now)
			if c.err != nil {
				delete(ports, port)
				h.notify()
			}
		}
		if len(ports) == 0 {
			delete(h.conns, remote)
		}
	}
}

// handlePacket passes a TCP segment to its connection or listener, or answers with RST.
func (h *TCPHost) handlePacket(packet []byte) {
	s, err := parseSegment(packet)
	if err != nil || s.dst.Addr() != h.cfg.Addr {
		return // not for this host, or invalid
	}
	now := time.Now()
	c := h.conns[s.src][s.dst.Port()]
	switch l := h.listeners[s.dst.Port()]; {
	case c != nil:
		wasEstablished := c.established
		c.handle(now, &s)
		if !wasEstablished && c.established && l != nil {
			if i := slices.Index(l.halfOpen, c); i >= 0 {
				l.halfOpen, l.ready = slices.Delete(l.halfOpen, i, i+1), append(l.ready, c)
			}
		}
		h.notify()
	case l != nil && s.flags&(syn|ack|rst) == syn && len(l.halfOpen)+len(l.ready) < tcpBacklog:
		c = h.newConn(s.dst, s.src)
		l.halfOpen = append(l.halfOpen, c)
		c.handleSYN(&s)
		c.open(now, h.newISN())
	default:
		h.sendRST(&s)
	}
}

// sendRST answers a segment that belongs to no connection with RST, unless it is a RST itself.
func (h *TCPHost) sendRST(s *segment) {
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

// send sends a segment. An error of the wire ends the host.
func (h *TCPHost) send(s *segment) {
	if err := h.cfg.Wire.Send(s.packet()); err != nil {
		h.fail(fmt.Errorf("send %v: %w", s, err))
	}
}

// newConn adds a connection; the caller calls open. The peer's MSS is unknown before its SYN.
func (h *TCPHost) newConn(local, remote netip.AddrPort) *tcpConn {
	mss := cmp.Or(h.options.MSS, h.cfg.MSS, h.linkMSS())
	c := &tcpConn{local: local, remote: remote, transmit: h.send, snd: sender{mss: 1}, rcv: receiver{mss: mss}}
	if h.conns[remote] == nil {
		h.conns[remote] = make(map[uint16]*tcpConn)
	}
	h.conns[remote][local.Port()] = c
	return c
}

// newISN returns the initial sequence number of the next connection.
func (h *TCPHost) newISN() seqNum {
	if h.options.ISN != nil {
		return seqNum(*h.options.ISN)
	}
	return seqNum(rand.Uint32())
}

// linkMSS returns the largest segment payload of the link.
func (h *TCPHost) linkMSS() int {
	if h.cfg.Addr.Is4() {
		return h.cfg.MTU - 20 - tcpHeaderLen
	}
	return h.cfg.MTU - 40 - tcpHeaderLen
}

// freePort returns a local port without a listener, and without a connection to remote.
func (h *TCPHost) freePort(remote netip.AddrPort) (uint16, error) {
	for range 1<<16 - firstPort { // each port once
		if h.lastPort++; h.lastPort < firstPort { // after 65535 comes 0
			h.lastPort = firstPort
		}
		if h.conns[remote][h.lastPort] == nil && h.listeners[h.lastPort] == nil {
			return h.lastPort, nil
		}
	}
	return 0, errors.New("no TCP port is free")
}

// waitUntil blocks until done returns true, and returns verbs.ErrTimeout after the timeout. It
// locks h.mu for calls of done. event names the awaited event, for cfg.OnWait and the error.
func (h *TCPHost) waitUntil(event string, timeout time.Duration, done func() bool) error {
	defer h.cfg.OnWait(event)()
	var expired <-chan time.Time // nil, and therefore never ready, without a timeout
	if timeout >= 0 {
		expired = time.After(timeout)
	}
	for timedOut := false; ; {
		h.mu.Lock()
		ok, err, change := done(), h.err, h.change
		h.mu.Unlock()
		switch {
		case ok:
			return nil
		case err != nil:
			return err
		case timedOut:
			return fmt.Errorf("no %s: %w", event, verbs.ErrTimeout)
		}
		select {
		case <-change:
		case <-h.cfg.Done:
			return net.ErrClosed
		case <-expired:
			timedOut = true // a change until now takes precedence
		}
	}
}
