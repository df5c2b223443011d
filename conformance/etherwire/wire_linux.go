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
	file *os.File // keeps the socket
	conn syscall.RawConn
	mtu  int

	frames chan arrival
	ended  chan struct{} // the reader has
	lost   atomic.Uint64 // frames that nobody read

	mu    sync.Mutex
	since time.Time // what came before is of no interest
}

var _ conformance.Wire = (*Wire)(nil)

// arrival is a packet, or a frame that should not be.
type arrival struct {
	conformance.Frame
	seen time.Time
	err  error
}

const (
	maxUnread   = 1 << 15 // frames
	bufferBytes = 8 << 20
	longestIP   = 1<<16 - 1
)

// Open opens the wire in the network namespace of the calling thread.
func Open(cfg Config) (*Wire, error) {
	w, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("wire at %s: %w", cfg.Interface, err)
	}
	go w.read()
	for _, f := range w.announcements() {
		if err := w.send(f); err != nil {
			return nil, errors.Join(fmt.Errorf("wire at %s: tell where it is: %w", cfg.Interface, err), w.Close())
		}
	}
	return w, nil
}

func open(cfg Config) (*Wire, error) {
	intf, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, err
	}
	w := &Wire{mtu: intf.MTU, frames: make(chan arrival, maxUnread), ended: make(chan struct{})}
	if w.station, err = newStation(&cfg, intf.HardwareAddr); err != nil {
		return nil, err
	}
	w.cfg, w.since = cfg, time.Now()
	// Protocol 0 keeps frames out until the socket is bound to its interface.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("packet socket: %w: it takes CAP_NET_RAW in the user namespace that owns the network namespace", err)
	}
	if err != nil {
		return nil, os.NewSyscallError("packet socket", err)
	}
	if err := setUp(fd, intf.Index); err != nil {
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

func setUp(fd, index int) error {
	for _, o := range []struct {
		level, opt int
		name       string
	}{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"}, // what goes to the device is not its
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, "PACKET_AUXDATA"},                 // tells of unfinished checksums
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
	// Frames for other stations, and groups, are seen too. It ends with the socket.
	m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return fmt.Errorf("PACKET_MR_PROMISC: %w", err)
	}
	return nil
}

// Send implements conformance.Wire. What is sent while the cable is out is lost.
func (w *Wire) Send(packet []byte) error { return w.send(w.frame(packet)) }

func (w *Wire) send(frame []byte) (err error) {
	cerr := w.conn.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), frame)
		if errors.Is(err, unix.ENETDOWN) {
			// It may be that the cable was out, which the kernel tells once, to whoever
			// comes first.
			_, err = unix.Write(int(fd), frame)
		}
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case errors.Is(err, unix.ENETDOWN):
		return nil
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("a packet of %d bytes, and the MTU of %s is %d: %w", len(frame)-headerLen, w.cfg.Interface, w.mtu, conformance.ErrCannot)
	}
	return errors.Join(cerr, os.NewSyscallError("send", err))
}

// Recv implements conformance.Wire.
func (w *Wire) Recv(timeout time.Duration) (conformance.Frame, error) {
	var out <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		out = t.C
	}
	for {
		var a arrival
		select { // what is there comes before the end of time
		case a = <-w.frames:
		default:
			select {
			case a = <-w.frames:
			case <-w.ended:
				return a.Frame, fmt.Errorf("wire at %s: %w", w.cfg.Interface, net.ErrClosed)
			case <-out:
				return a.Frame, cmp.Or(w.lostErr(), fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout))
			}
		}
		if a.seen.Before(w.start()) {
			continue
		}
		return a.Frame, cmp.Or(a.err, w.lostErr())
	}
}

// lostErr says that frames are missing: nothing can be said of what comes then.
func (w *Wire) lostErr() error {
	if n := w.lost.Load() + w.overruns(); n > 0 {
		w.lost.Store(n)
		return fmt.Errorf("wire at %s: %d frames were lost, for nobody read them in time", w.cfg.Interface, n)
	}
	return nil
}

// overruns returns how many frames the kernel had no room for since the last call.
func (w *Wire) overruns() (n uint64) {
	_ = w.conn.Control(func(fd uintptr) {
		if st, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			n = uint64(st.Drops)
		}
	})
	return n
}

// Join implements conformance.Wire. Everything is seen anyway.
func (w *Wire) Join(netip.Addr) error { return nil }

// Epoch is time 0 of frames.
func (w *Wire) Epoch() time.Time { return w.cfg.Epoch }

// Forget forgets what has come so far, and that some was lost, and begins anew.
func (w *Wire) Forget() {
	w.mu.Lock()
	w.since = time.Now()
	w.mu.Unlock()
	w.overruns()
	w.lost.Store(0)
}

func (w *Wire) start() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

// Close closes the wire. A Recv under way returns.
func (w *Wire) Close() error {
	err := w.file.Close()
	<-w.ended
	return err
}

// read takes frames from the socket until it is closed.
func (w *Wire) read() {
	defer close(w.ended)
	buf, control := make([]byte, headerLen+longestIP+4), make([]byte, 256)
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
		case err != nil: // ENETDOWN: the cable is out, which it may be
			continue
		}
		seen, unfinished := readControl(control[:oobn])
		ip, answer := w.take(buf[:n])
		if answer != nil {
			_ = w.send(answer) // who asked asks again
		}
		if ip != nil {
			w.deliver(ip, seen, unfinished)
		}
	}
}

func (w *Wire) deliver(ip []byte, seen time.Time, unfinished bool) {
	a := arrival{seen: seen, Frame: conformance.Frame{At: seen.Sub(w.cfg.Epoch), Packet: append([]byte(nil), ip...)}}
	switch {
	case unfinished:
		a.err = fmt.Errorf("wire at %s: a packet whose checksum is not computed yet: switch off the offload at the device's end (ethtool -K IF tx off)", w.cfg.Interface)
	case len(ip) > w.mtu:
		a.err = fmt.Errorf("wire at %s: %d bytes in one frame, which is several in one: switch off the offload (ethtool -K IF gso off gro off lro off)", w.cfg.Interface, len(ip))
	}
	select {
	case w.frames <- a:
	default:
		w.lost.Add(1)
	}
}

// readControl returns when a frame was seen, on Go's clock, and whether its checksum
// is left for hardware to compute.
func readControl(b []byte) (seen time.Time, unfinished bool) {
	seen = time.Now()
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return seen, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= sizeofTimespec:
			at := timespec(m.Data)
			// The difference is of wall clocks; the result is monotonic again.
			if age := seen.Round(0).Sub(at); age > 0 {
				seen = seen.Add(-age)
			}
		case m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4:
			unfinished = nativeUint32(m.Data)&unix.TP_STATUS_CSUMNOTREADY != 0
		}
	}
	return seen, unfinished
}
