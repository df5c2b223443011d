package udpwire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Wire is an open wire.
type Wire struct {
	cfg   Config
	index int // of the interface
	mtu   int

	bound         []*socket // bound to cfg.Port of each of cfg.Addrs
	readers       sync.WaitGroup
	closed        chan struct{}
	arrivalSignal chan struct{} // an arrival is queued

	sending     sync.Mutex
	sendSockets map[netip.AddrPort]*socket // bound to other source ports
	groups      []*socket                  // joined groups

	mu            sync.Mutex
	discardBefore time.Time // datagrams received before are ignored
	queue         []arrival // by receive time
	dropped       uint64
}

var _ conformance.Wire = (*Wire)(nil)

type arrival struct {
	conformance.Frame
	seen time.Time
	err  error
}

const (
	maxQueued  = 1 << 15 // datagrams
	maxSockets = 512     // limit of sendSockets
	maxUDPLen  = 1<<16 - 1
)

// Open opens the wire.
func Open(cfg Config) (*Wire, error) {
	w := &Wire{cfg: cfg, closed: make(chan struct{}), arrivalSignal: make(chan struct{}, 1), sendSockets: make(map[netip.AddrPort]*socket), discardBefore: time.Now()}
	if w.cfg.Epoch.IsZero() {
		w.cfg.Epoch = w.discardBefore
	}
	if w.cfg.InNamespace == nil {
		w.cfg.InNamespace = func(f func() error) error { return f() }
	}
	if err := w.cfg.InNamespace(w.open); err != nil {
		return nil, errors.Join(fmt.Errorf("UDP sockets at %s: %w", cfg.Interface, err), w.Close())
	}
	return w, nil
}

func (w *Wire) open() error {
	intf, err := net.InterfaceByName(w.cfg.Interface)
	if err != nil {
		return err
	}
	w.index, w.mtu = intf.Index, intf.MTU
	switch {
	case w.cfg.Port == 0:
		return errors.New("no Port")
	case len(w.cfg.Addrs) == 0 || len(w.cfg.Device) == 0:
		return errors.New("no Addrs, or no Device")
	}
	for _, a := range w.cfg.Addrs {
		s, err := bind(netip.AddrPortFrom(a, w.cfg.Port), w.index)
		if err != nil {
			return err
		}
		w.bound = append(w.bound, s)
		w.readers.Go(func() { w.readLoop(s) })
	}
	return nil
}

// Send implements conformance.Wire. Packets sent while the link is down are lost.
func (w *Wire) Send(packet []byte) error {
	d, err := w.cfg.datagram(packet)
	if err != nil {
		return err
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	s, err := w.sendSocket(d.src)
	if err != nil {
		return err
	}
	switch err := s.send(d, w.index); {
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return nil
	case errors.Is(err, unix.EMSGSIZE):
		return cannot("packet of %d bytes exceeds the MTU of %s, %d", len(packet), w.cfg.Interface, w.mtu)
	case err != nil:
		return fmt.Errorf("send from %v to %v: %w", d.src, d.dst, err)
	}
	return nil
}

// sendSocket returns the socket bound to a source address, and creates it if needed.
func (w *Wire) sendSocket(at netip.AddrPort) (*socket, error) {
	for _, s := range w.bound {
		if s.at == at {
			return s, nil
		}
	}
	if s, ok := w.sendSockets[at]; ok {
		return s, nil
	}
	if len(w.sendSockets) >= maxSockets {
		closeAll(w.sendSockets)
	}
	s, err := w.bind(at)
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) {
		return nil, cannot("from UDP port %d: %v", at.Port(), err)
	}
	if err != nil {
		return nil, err
	}
	w.sendSockets[at] = s
	return s, nil
}

// bind creates a socket in the wire's network namespace.
func (w *Wire) bind(at netip.AddrPort) (s *socket, err error) {
	err = w.cfg.InNamespace(func() error {
		s, err = bind(at, w.index)
		return err
	})
	return s, err
}

func closeAll(sockets map[netip.AddrPort]*socket) {
	for at, s := range sockets {
		s.file.Close()
		delete(sockets, at)
	}
}

// Recv implements conformance.Wire.
func (w *Wire) Recv(timeout time.Duration) (conformance.Frame, error) {
	var expired <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for timedOut := false; ; {
		if a, ok := w.dequeue(); ok {
			return a.Frame, a.err
		}
		switch {
		case timedOut:
			return conformance.Frame{}, fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout)
		default:
			select {
			case <-w.arrivalSignal:
			case <-w.closed:
				return conformance.Frame{}, fmt.Errorf("UDP sockets at %s: %w", w.cfg.Interface, net.ErrClosed)
			case <-expired:
				timedOut = true // queued datagrams take precedence
			}
		}
	}
}

// dequeue returns the first arrival, or an error if datagrams were dropped.
func (w *Wire) dequeue() (a arrival, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropped > 0 {
		a.err = fmt.Errorf("UDP sockets at %s: %d datagrams were dropped because they were not read in time", w.cfg.Interface, w.dropped)
		return a, true
	}
	if len(w.queue) == 0 {
		return a, false
	}
	a, w.queue = w.queue[0], w.queue[1:]
	if len(w.queue) > 0 {
		w.wake() // for a concurrent Recv
	}
	return a, true
}

func (w *Wire) wake() {
	select {
	case w.arrivalSignal <- struct{}{}:
	default:
	}
}

// Join implements conformance.Wire.
func (w *Wire) Join(group netip.Addr) error {
	s, err := w.bind(netip.AddrPortFrom(group, w.cfg.Port))
	if err != nil {
		return err
	}
	if err := s.join(w.index); err != nil {
		return errors.Join(fmt.Errorf("join %v: %w", group, err), s.file.Close())
	}
	w.sending.Lock()
	w.groups = append(w.groups, s)
	w.sending.Unlock()
	w.readers.Go(func() { w.readLoop(s) })
	return nil
}

// Epoch is time 0 of received frames.
func (w *Wire) Epoch() time.Time { return w.cfg.Epoch }

// Discard discards received datagrams and the count of dropped ones, closes sockets at
// other ports, and leaves all groups.
func (w *Wire) Discard() {
	w.closeExtraSockets()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.discardBefore, w.queue, w.dropped = time.Now(), nil, 0
}

// closeExtraSockets closes all sockets but those of Open.
func (w *Wire) closeExtraSockets() {
	w.sending.Lock()
	defer w.sending.Unlock()
	closeAll(w.sendSockets)
	for _, s := range w.groups {
		s.file.Close()
	}
	w.groups = nil
}

// Close closes the wire. A blocked Recv returns.
func (w *Wire) Close() error {
	w.closeExtraSockets()
	errs := make([]error, 0, len(w.bound))
	for _, s := range w.bound {
		errs = append(errs, s.file.Close())
	}
	w.readers.Wait()
	close(w.closed)
	return errors.Join(errs...)
}
