package interop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxFrame exceeds the MTU: the kernel shows frames before it segments them (GSO).
	maxFrame = 1 << 17
	// roomBytes is the size of the socket's receive buffer.
	roomBytes = 32 << 20
	// slice bounds one wait for a frame.
	slice = 50 * time.Millisecond
)

// Tap passes all frames of one interface to its Watches, on a goroutine of its own, until
// it is closed.
type Tap struct {
	fd    int
	done  chan struct{}
	ended chan struct{}

	mu    sync.Mutex
	watch *Watch
}

// OpenTap opens a Tap on the interface that has the address local. It needs the right
// to open packet sockets (CAP_NET_RAW in the user namespace of the network).
func OpenTap(local netip.Addr) (*Tap, error) {
	index, err := interfaceOf(local)
	if err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomBytes) != nil {
		// Without the right to force it, as much as there is.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, roomBytes)
	}
	timeout := unix.NsecToTimeval(int64(slice))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on interface %d: %w", index, err)
	}
	t := &Tap{fd: fd, done: make(chan struct{}), ended: make(chan struct{})}
	go t.run()
	return t, nil
}

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

func (t *Tap) run() {
	defer close(t.ended)
	frame := make([]byte, maxFrame)
	for {
		select {
		case <-t.done:
			return
		default:
		}
		n, _, err := unix.Recvfrom(t.fd, frame, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			return // the interface was removed; the Report has the number of frames that were not read
		}
		t.mu.Lock()
		watch := t.watch
		t.mu.Unlock()
		if watch != nil {
			watch.Frame(time.Now(), frame[:n])
		}
	}
}

// Feed gives all frames from now on to w, and none if it is nil.
func (t *Tap) Feed(w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = w
}

// Close ends the tap.
func (t *Tap) Close() error {
	close(t.done)
	<-t.ended
	return unix.Close(t.fd)
}
