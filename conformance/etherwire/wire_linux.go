package etherwire

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Wire is an open wire.
type Wire struct {
	station
	cfg  Config
	file *os.File // owns the socket
	conn syscall.RawConn
	mtu  int

	frames     chan arrival
	readerDone chan struct{} // closed when the reader has ended
	dropped    atomic.Uint64 // frames dropped because the queue was full

	mu            sync.Mutex
	discardBefore time.Time // frames received before are ignored
}

var _ conformance.Wire = (*Wire)(nil)

// arrival is a received packet, or the error of a frame that shows an offload.
type arrival struct {
	conformance.Frame
	seen time.Time
	err  error
}

const (
	maxQueued   = 1 << 15 // frames
	bufferBytes = 8 << 20
	maxIPLen    = 1<<16 - 1
)

// Open opens the wire in the network namespace of the calling thread.
func Open(cfg Config) (*Wire, error) {
	w, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("wire at %s: %w", cfg.Interface, err)
	}
	go w.readLoop()
	for _, f := range w.announcements() {
		if err := w.send(f); err != nil {
			return nil, errors.Join(fmt.Errorf("wire at %s: announce addresses: %w", cfg.Interface, err), w.Close())
		}
	}
	return w, nil
}

func open(cfg Config) (*Wire, error) {
	intf, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, err
	}
	w := &Wire{mtu: intf.MTU, frames: make(chan arrival, maxQueued), readerDone: make(chan struct{})}
	if w.station, err = newStation(&cfg, intf.HardwareAddr); err != nil {
		return nil, err
	}
	w.cfg, w.discardBefore = cfg, time.Now()
	// Protocol 0: no frames arrive before the socket is bound to its interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("packet socket: %w: it needs CAP_NET_RAW in the user namespace that owns the network namespace", err)
	}
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	if err := configureSocket(fd, intf.Index); err != nil {
		unix.Close(fd)
		return nil, err
	}
	w.file = os.NewFile(uintptr(fd), "packet:"+cfg.Interface)
	if w.conn, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

func configureSocket(fd, index int) error {
	for _, o := range []struct {
		level, opt int
		name       string
	}{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"}, // no frames of our own
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, "PACKET_AUXDATA"},                 // flags partial checksums
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, "SO_TIMESTAMPNS"},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, 1); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	// Promiscuous mode, for frames to other stations and groups. It ends with the socket.
	m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("PACKET_MR_PROMISC: %w", err)
	}
	return nil
}

// Send implements conformance.Wire. Packets sent while the link is down are lost.
func (w *Wire) Send(packet []byte) error { return w.send(w.ethernetFrame(packet)) }

func (w *Wire) send(frame []byte) (err error) {
	cerr := w.conn.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), frame)
		if errors.Is(err, unix.ENETDOWN) {
			// The kernel reports an earlier link-down once: retry.
			_, err = unix.Write(int(fd), frame)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case errors.Is(err, unix.ENETDOWN):
		return nil
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("packet of %d bytes exceeds the MTU of %s, %d: %w", len(frame)-headerLen, w.cfg.Interface, w.mtu, conformance.ErrBenchCannot)
	}
	return errors.Join(cerr, os.NewSyscallError("send", err))
}

// Recv implements conformance.Wire.
func (w *Wire) Recv(timeout time.Duration) (conformance.Frame, error) {
	var expired <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	for {
		var a arrival
		select { // queued frames take precedence over the timeout
		case a = <-w.frames:
		default:
			select {
			case a = <-w.frames:
			case <-w.readerDone:
				return a.Frame, fmt.Errorf("wire at %s: %w", w.cfg.Interface, net.ErrClosed)
			case <-expired:
				return a.Frame, cmp.Or(w.dropError(), fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout))
			}
		}
		if a.seen.Before(w.discardTime()) {
			continue
		}
		return a.Frame, cmp.Or(a.err, w.dropError())
	}
}

// dropError returns an error if frames were dropped.
func (w *Wire) dropError() error {
	if n := w.dropped.Load() + w.overruns(); n > 0 {
		w.dropped.Store(n)
		return fmt.Errorf("wire at %s: %d frames were dropped because they were not read in time", w.cfg.Interface, n)
	}
	return nil
}

// overruns returns the number of frames that the kernel dropped since the last call.
func (w *Wire) overruns() (n uint64) {
	_ = w.conn.Control(func(fd uintptr) {
		if st, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = uint64(st.Drops)
		}
	})
	return n
}

// Join implements conformance.Wire. The wire receives all frames anyway.
func (w *Wire) Join(netip.Addr) error { return nil }

// Epoch is time 0 of received frames.
func (w *Wire) Epoch() time.Time { return w.cfg.Epoch }

// Discard discards received frames and the count of dropped ones.
func (w *Wire) Discard() {
	w.mu.Lock()
	w.discardBefore = time.Now()
	w.mu.Unlock()
	w.overruns()
	w.dropped.Store(0)
}

func (w *Wire) discardTime() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.discardBefore
}

// Close closes the wire. A blocked Recv returns.
func (w *Wire) Close() error {
	err := w.file.Close()
	<-w.readerDone
	return err
}

// readLoop reads frames from the socket until it is closed.
func (w *Wire) readLoop() {
	defer close(w.readerDone)
	buf, control := make([]byte, headerLen+maxIPLen+4), make([]byte, 256)
	for {
		var n, oobn int
		var err error
		cerr := w.conn.Read(func(fd uintptr) bool {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), buf, control, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case cerr != nil:
			return // closed
		case err != nil: // ENETDOWN: the link is down
			continue
		}
		seen, partialChecksum := parseControl(control[:oobn])
		ip, answer := w.handleFrame(buf[:n])
		if answer != nil {
			_ = w.send(answer) // the host retries
		}
		if ip != nil {
			w.deliver(ip, seen, partialChecksum)
		}
	}
}

func (w *Wire) deliver(ip []byte, seen time.Time, partialChecksum bool) {
	a := arrival{seen: seen, Frame: conformance.Frame{At: seen.Sub(w.cfg.Epoch), Packet: append([]byte(nil), ip...)}}
	switch {
	case partialChecksum:
		a.err = fmt.Errorf("wire at %s: packet with a partial checksum: switch off the offload at the device's end (ethtool -K IF tx off)", w.cfg.Interface)
	case len(ip) > w.mtu:
		a.err = fmt.Errorf("wire at %s: frame of %d bytes, coalesced from several: switch off the offload (ethtool -K IF gso off gro off lro off)", w.cfg.Interface, len(ip))
	}
	select {
	case w.frames <- a:
	default:
		w.dropped.Add(1)
	}
}

// parseControl returns the receive time of a frame, and whether its checksum is partial.
func parseControl(b []byte) (seen time.Time, partialChecksum bool) {
	seen = time.Now()
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return seen, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= sizeofTimespec:
			at := timespec(m.Data)
			// The age is a difference of wall clocks; the result is monotonic.
			if age := seen.Round(0).Sub(at); age > 0 {
				seen = seen.Add(-age)
			}
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4:
			partialChecksum = nativeUint32(m.Data)&unix.TP_STATUS_CSUMNOTREADY != 0
		}
	}
	return seen, partialChecksum
}
