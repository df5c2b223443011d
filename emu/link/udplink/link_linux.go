package udplink

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/process"
)

// Link is a link.PacketLink on a UDP socket. The package comment says which methods may be
// called concurrently.
type Link struct {
	users useCount
	fd    int // receives, and sends unless source is open
	info  Info
	ifi   int      // index of the interface that owns Local; 0 if none is known
	ns    *os.File // the network namespace of the socket; nil if unknown
	sock  socketOptions

	source sourceSockets
	out    sender
	in     receiver
	ring   ring
	frames frameSender
	sleep  sleeper

	groups     []group
	lastSocket int // socket that was read last: 0 is fd, i+1 is groups[i]

	stats Stats
}

var (
	_ link.Waiter    = (*Link)(nil)
	_ link.GroupLink = (*Link)(nil)
)

// Open opens a Link in the network namespace of the caller's thread.
func Open(cfg Config) (*Link, error) {
	l, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("udplink: open %v: %w", cfg.Local, err)
	}
	return l, nil
}

// open opens and configures the sockets of a link. It checks which offloads the kernel has. With
// OffloadAuto, GRO is enabled later, when a burst arrives.
func open(cfg Config) (*Link, error) {
	if !cfg.Local.IsValid() {
		return nil, errors.New("no local address")
	}
	cfg.Local = netip.AddrPortFrom(cfg.Local.Addr().Unmap(), cfg.Local.Port())
	v6 := cfg.Local.Addr().Is6()
	wanted, err := wantGSO(cfg, v6)
	if err != nil {
		return nil, err
	}
	owner, err := findInterface(cfg.Local.Addr())
	if err != nil {
		return nil, err
	}
	mtu, err := effectiveMTU(cfg, owner)
	if err != nil {
		return nil, err
	}

	l := &Link{fd: -1, source: sourceSockets{fd: -1, peer: -1}, ring: ring{fd: -1}, ifi: owner.index, sock: socketOptions{Config: cfg, v6: v6, iface: owner}}
	defer func() {
		if err != nil {
			l.release()
		}
	}()
	if l.fd, err = l.sock.newSocket(); err != nil {
		return nil, err
	}
	gso, err := probeOffload(l.fd, unix.UDP_SEGMENT, "UDP_SEGMENT, needed for GSO", wanted) // since Linux 4.18
	if err != nil {
		return nil, err
	}
	gro, err := probeOffload(l.fd, unix.UDP_GRO, "UDP_GRO, needed for GRO", cfg.GRO) // since Linux 5.0
	if err != nil {
		return nil, err
	}
	groNow, groOnBurst := gro && cfg.GRO == OffloadOn, gro && cfg.GRO == OffloadAuto
	if groNow {
		if err = enableGRO(l.fd); err != nil {
			return nil, err
		}
	}
	local, err := bind(l.fd, cfg.Local, owner.index)
	if err != nil {
		return nil, err
	}
	if err = l.sleep.open(l.fd); err != nil {
		return nil, err
	}
	l.ns, _ = process.OpenNetNS() // without it only Join fails

	l.info = Info{Local: local, Interface: owner.name, MTU: mtu, GSO: gso, GRO: groNow}
	l.info.RecvBufBytes, _ = unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	l.info.SendBufBytes, _ = unix.GetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if l.info.HopLimit, err = l.sock.setDefaults(l.fd); err != nil {
		return nil, err
	}
	l.info.Source = local
	if cfg.SeparateSourcePort && v6 && !local.Addr().IsUnspecified() { // other links ignore SeparateSourcePort
		if l.info.Source, err = l.source.open(&l.sock); err != nil {
			return nil, err
		}
	}
	if err = l.openRing(cfg, gro); err != nil {
		return nil, err
	}
	l.out.init(cfg, l.info, owner.index)
	l.in.init(l.info, groOnBurst && !l.info.GRO)
	return l, nil
}

// openRing opens the packet ring and what sends frames, if cfg.PacketRing asks for them. gro says whether
// the kernel has GRO and it may be used: then it is enabled, since each index entry of the ring
// stands for one message.
func (l *Link) openRing(cfg Config, gro bool) error {
	err := errNoRing
	switch {
	case cfg.PacketRing == OffloadOff:
		return nil
	case !gro, l.ifi == 0, cfg.NoChecksum, !cfg.DropFragmentable:
	default:
		err = l.ring.open(l.info.Local, l.sock.iface, l.fd)
	}
	if err == nil {
		if err = l.frames.open(l.info, l.ifi); err == nil {
			err = enableGRO(l.fd)
		}
		if err != nil {
			return fmt.Errorf("packet ring: %w", err) // the sockets have the filters of a ring
		}
		l.info.PacketRing, l.info.GRO = true, true
		l.sleep.watch(l.ring.fd)
		l.sleep.readable = &l.ring.socket.woken
		return nil
	}
	if cfg.PacketRing == OffloadOn {
		return fmt.Errorf("packet ring: %w", err)
	}
	return nil
}

// Close closes the link and makes WaitReadable return. The address is free when Close returns.
func (l *Link) Close() error {
	if !l.users.close() {
		return link.ErrClosed
	}
	l.sleep.wake()
	l.users.drain()
	l.release()
	return nil
}

// release closes the file descriptors, which no other goroutine uses.
func (l *Link) release() {
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
	l.source.close()
	l.ring.close()
	l.frames.close()
	for _, g := range l.groups {
		g.close()
	}
	l.sleep.close()
	if l.ns != nil {
		l.ns.Close()
	}
	clear(l.out.iovecs[:]) // drop the references to the payloads of the last batch
}

// MTU is the largest IP packet, headers included, that the link sends.
func (l *Link) MTU() int { return l.info.MTU }

// Features implements link.PacketLink.
func (l *Link) Features() link.Features {
	return link.Features{SeesHeader: true, SetsHeader: true, SrcPort: l.info.Source.Port()}
}

// Info returns the settings in use.
func (l *Link) Info() Info {
	info := l.info
	info.GSO, info.GRO = l.out.gso, l.in.gro
	return info
}

// Stats returns the counters; after Close, KernelDrops is that of the last call before. It is not
// safe for concurrent use with Send and Recv.
func (l *Link) Stats() Stats {
	if l.users.enter() {
		l.stats.KernelDrops = l.kernelDrops()
		l.users.leave()
	}
	return l.stats
}

// wantGSO returns cfg.GSO, or OffloadOff if other settings exclude GSO; if they do and cfg.GSO is
// OffloadOn, it returns an error. Over IPv4, PatchIPID must change the ICRCs in the payloads for
// the identifications that the kernel gives to segments.
func wantGSO(cfg Config, v6 bool) (Offload, error) {
	var reason string
	switch {
	case cfg.GSO == OffloadOff:
		return OffloadOff, nil
	case cfg.NoChecksum:
		reason = "GSO needs UDP checksums: unset NoChecksum or GSO"
	case !v6 && cfg.PatchIPID == nil:
		reason = "GSO over IPv4 needs PatchIPID: the kernel numbers the segments"
	default:
		return cfg.GSO, nil
	}
	if cfg.GSO == OffloadOn {
		return OffloadOff, errors.New(reason)
	}
	return OffloadOff, nil
}
