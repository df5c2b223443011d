package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
)

// UDP is a wire of UDP sockets, at IP addresses of this host. It sends a packet only if the kernel
// would send it bit for bit, and returns an error that wraps conformance.ErrBenchCannot for others.
// Of a received packet a socket reports the payload, addresses, ports, hop limit, traffic class and
// flow label. The wire invents the other header fields; cases must not judge them.
//
// It does not know RoCE. The caller may supply the identification of a received IPv4 packet
// (UDPConfig.LookupIPv4ID).
type UDP struct {
	*queue
	cfg     UDPConfig
	index   int // of the interface
	mtu     int
	bound   []*socket // bound to cfg.Port of each of cfg.Addrs
	readers sync.WaitGroup

	sending     sync.Mutex
	sendSockets map[netip.AddrPort]*socket // bound to other source ports
	groups      []*socket                  // joined groups
}

var _ conformance.Wire = (*UDP)(nil)

const (
	maxSockets = 512 // limit of sendSockets
	maxUDPLen  = 1<<16 - 1
)

// OpenUDP opens a conformance.Wire of UDP sockets. It needs the permission to bind cfg.Port.
func OpenUDP(cfg UDPConfig) (*UDP, error) {
	w := &UDP{queue: newQueue("UDP sockets at "+cfg.Interface, cfg.Epoch), cfg: cfg, sendSockets: make(map[netip.AddrPort]*socket)}
	w.byTime = true // the readers of several sockets add packets in any order
	if w.cfg.InNamespace == nil {
		w.cfg.InNamespace = func(f func() error) error { return f() }
	}
	if err := w.cfg.InNamespace(w.open); err != nil {
		return nil, errors.Join(fmt.Errorf("UDP sockets at %s: %w", cfg.Interface, err), w.Close())
	}
	return w, nil
}

// open checks the configuration, binds the sockets in the calling thread's network namespace, and
// starts a reader for each.
func (w *UDP) open() error {
	intf, err := net.InterfaceByName(w.cfg.Interface)
	if err != nil {
		return err
	}
	w.index, w.mtu = intf.Index, intf.MTU
	switch {
	case w.cfg.Port == 0:
		return errors.New("UDPConfig.Port is not set")
	case len(w.cfg.Addrs) == 0 || len(w.cfg.Device) == 0:
		return errors.New("UDPConfig.Addrs or UDPConfig.Device is empty")
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
func (w *UDP) Send(packet []byte) error {
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
		return cannotSend("packet of %d bytes exceeds the MTU of %s, %d", len(packet), w.cfg.Interface, w.mtu)
	case err != nil:
		return fmt.Errorf("send from %v to %v: %w", d.src, d.dst, err)
	}
	return nil
}

// sendSocket returns the socket bound to a source address, and creates it if needed.
func (w *UDP) sendSocket(at netip.AddrPort) (*socket, error) {
	for _, s := range w.bound {
		if s.at == at {
			return s, nil
		}
	}
	if s, ok := w.sendSockets[at]; ok {
		return s, nil
	}
	if len(w.sendSockets) >= maxSockets {
		closeAll(w.sendSockets) // those still in use are opened again
	}
	s, err := w.bind(at)
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) {
		return nil, cannotSend("from UDP port %d: %v", at.Port(), err)
	}
	if err != nil {
		return nil, err
	}
	w.sendSockets[at] = s
	return s, nil
}

// bind creates a socket in the wire's network namespace.
func (w *UDP) bind(at netip.AddrPort) (s *socket, err error) {
	err = w.cfg.InNamespace(func() error {
		s, err = bind(at, w.index)
		return err
	})
	return s, err
}

// closeAll closes and removes all sockets.
func closeAll(sockets map[netip.AddrPort]*socket) {
	for at, s := range sockets {
		s.file.Close()
		delete(sockets, at)
	}
}

// Join implements conformance.Wire: Recv then returns datagrams to a multicast group, too.
func (w *UDP) Join(group netip.Addr) error {
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

// Discard discards received datagrams and the count of dropped ones, closes the sockets that Send
// opened for other source addresses, and leaves all groups.
func (w *UDP) Discard() {
	w.closeExtraSockets()
	w.discard()
}

// closeExtraSockets closes all sockets but those that OpenUDP bound.
func (w *UDP) closeExtraSockets() {
	w.sending.Lock()
	defer w.sending.Unlock()
	closeAll(w.sendSockets)
	for _, s := range w.groups {
		s.file.Close()
	}
	w.groups = nil
}

// Close closes the wire. A blocked Recv returns.
func (w *UDP) Close() error {
	w.closeExtraSockets()
	errs := make([]error, 0, len(w.bound))
	for _, s := range w.bound {
		errs = append(errs, s.file.Close())
	}
	w.readers.Wait()
	close(w.closed)
	return errors.Join(errs...)
}
