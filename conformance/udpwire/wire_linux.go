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

	home    []*socket // at cfg.Port of each of cfg.Addrs
	readers sync.WaitGroup
	closed  chan struct{}
	news    chan struct{} // something has arrived

	sending sync.Mutex
	others  map[netip.AddrPort]*socket // at other ports, to send from
	groups  []*socket                  // that were joined

	mu      sync.Mutex
	since   time.Time // what came before is of no interest
	arrived []arrival // in the order of seen
	lost    uint64
}

var _ conformance.Wire = (*Wire)(nil)

type arrival struct {
	conformance.Frame
	seen time.Time
	err  error
}

const (
	maxUnread  = 1 << 15 // datagrams
	maxSockets = 512     // to send from, beside those at home
	longestUDP = 1<<16 - 1
)

// Open opens the wire.
func Open(cfg Config) (*Wire, error) {
	w := &Wire{cfg: cfg, closed: make(chan struct{}), news: make(chan struct{}, 1), others: make(map[netip.AddrPort]*socket), since: time.Now()}
	if w.cfg.Epoch.IsZero() {
		w.cfg.Epoch = w.since
	}
	if w.cfg.Within == nil {
		w.cfg.Within = func(f func() error) error { return f() }
	}
	if err := w.cfg.Within(w.open); err != nil {
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
		return errors.New("no Port: nobody would send here")
	case len(w.cfg.Addrs) == 0 || len(w.cfg.Device) == 0:
		return errors.New("no Addrs, or no Device: nobody would send here, or be sent to")
	}
	for _, a := range w.cfg.Addrs {
		s, err := bind(netip.AddrPortFrom(a, w.cfg.Port), w.index)
		if err != nil {
			return err
		}
		w.home = append(w.home, s)
		w.readers.Go(func() { w.read(s) })
	}
	return nil
}

// Send implements conformance.Wire. What is sent while the cable is out is lost.
func (w *Wire) Send(packet []byte) error {
	d, err := w.cfg.datagram(packet)
	if err != nil {
		return err
	}
	w.sending.Lock()
	defer w.sending.Unlock()
	s, err := w.from(d.src)
	if err != nil {
		return err
	}
	switch err := s.send(d, w.index); {
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return nil
	case errors.Is(err, unix.EMSGSIZE):
		return cannot("a packet of %d bytes, and the MTU of %s is %d", len(packet), w.cfg.Interface, w.mtu)
	case err != nil:
		return fmt.Errorf("send from %v to %v: %w", d.src, d.dst, err)
	}
	return nil
}

// from is the socket at an address, which it makes if need be.
func (w *Wire) from(at netip.AddrPort) (*socket, error) {
	for _, s := range w.home {
		if s.at == at {
			return s, nil
		}
	}
	if s, ok := w.others[at]; ok {
		return s, nil
	}
	if len(w.others) >= maxSockets {
		closeAll(w.others)
	}
	s, err := w.bind(at)
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) {
		return nil, cannot("from UDP port %d: %v", at.Port(), err)
	}
	if err != nil {
		return nil, err
	}
	w.others[at] = s
	return s, nil
}

// bind makes a socket at an address.
func (w *Wire) bind(at netip.AddrPort) (s *socket, err error) {
	err = w.cfg.Within(func() error {
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
	var out <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		out = t.C
	}
	for last := false; ; {
		if a, ok := w.take(); ok {
			return a.Frame, a.err
		}
		switch {
		case last:
			return conformance.Frame{}, fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout)
		default:
			select {
			case <-w.news:
			case <-w.closed:
				return conformance.Frame{}, fmt.Errorf("UDP sockets at %s: %w", w.cfg.Interface, net.ErrClosed)
			case <-out:
				last = true // what is there comes before the end of time
			}
		}
	}
}

// take returns the first that has arrived, or says that some are missing.
func (w *Wire) take() (a arrival, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost > 0 {
		a.err = fmt.Errorf("UDP sockets at %s: %d datagrams were lost, for nobody read them in time", w.cfg.Interface, w.lost)
		return a, true
	}
	if len(w.arrived) == 0 {
		return a, false
	}
	a, w.arrived = w.arrived[0], w.arrived[1:]
	if len(w.arrived) > 0 {
		w.wake() // somebody else may wait
	}
	return a, true
}

func (w *Wire) wake() {
	select {
	case w.news <- struct{}{}:
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
	w.readers.Go(func() { w.read(s) })
	return nil
}

// Epoch is time 0 of frames.
func (w *Wire) Epoch() time.Time { return w.cfg.Epoch }

// Forget forgets what has come so far, and that some was lost, and begins anew: at the
// first port, and in no group.
func (w *Wire) Forget() {
	w.leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.arrived, w.lost = time.Now(), nil, 0
}

// leave closes the sockets that are not at home.
func (w *Wire) leave() {
	w.sending.Lock()
	defer w.sending.Unlock()
	closeAll(w.others)
	for _, s := range w.groups {
		s.file.Close()
	}
	w.groups = nil
}

// Close closes the wire. A Recv under way returns.
func (w *Wire) Close() error {
	w.leave()
	errs := make([]error, 0, len(w.home))
	for _, s := range w.home {
		errs = append(errs, s.file.Close())
	}
	w.readers.Wait()
	close(w.closed)
	return errors.Join(errs...)
}
