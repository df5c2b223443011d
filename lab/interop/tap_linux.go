package interop

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFrame exceeds the MTU: the kernel shows frames before it segments them (GSO).
	maxFrame = 1 << 17
	// receiveBuffer is the size of the socket's receive buffer.
	receiveBuffer = 32 << 20
)

// Tap passes all frames of one interface to its Monitor, on its own goroutine, until Close.
type Tap struct {
	socket  *os.File
	ended   chan struct{}
	monitor atomic.Pointer[Monitor]
}

// OpenTap opens a Tap, which passes all frames to a Monitor, on the interface with address local.
// It needs CAP_NET_RAW in the user namespace of the network.
func OpenTap(local netip.Addr) (*Tap, error) {
	index, err := interfaceOf(local)
	if err != nil {
		return nil, err
	}
	const allProtocols = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		// Without CAP_NET_ADMIN the kernel limits the size.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: index}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on interface %d: %w", index, err)
	}
	t := &Tap{socket: os.NewFile(uintptr(fd), "packet socket"), ended: make(chan struct{})}
	go t.run()
	return t, nil
}

// interfaceOf returns the index of the interface that has the address local.
func interfaceOf(local netip.Addr) (int, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return 0, err
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == local {
				return i.Index, nil
			}
		}
	}
	return 0, fmt.Errorf("no interface has %v", local)
}

// run passes frames to the monitor, if set, until the tap is closed or the interface removed.
func (t *Tap) run() {
	defer close(t.ended)
	frame := make([]byte, maxFrame)
	for {
		n, err := t.socket.Read(frame)
		if err != nil {
			return
		}
		if monitor := t.monitor.Load(); monitor != nil {
			monitor.Frame(time.Now(), frame[:n])
		}
	}
}

// Feed gives all frames from now on to m, and none if it is nil.
func (t *Tap) Feed(m *Monitor) { t.monitor.Store(m) }

// Close closes the socket. When it returns, the Monitor gets no more frames.
func (t *Tap) Close() error {
	err := t.socket.Close()
	<-t.ended
	return err
}
