package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
)

// hostGrace is what a case on a device of another host has to end, and the device to be
// closed: Linux's iWARP lets go of a connection that is being made when the peer has
// answered, or after ten seconds.
const hostGrace = 15 * time.Second

// hostStreams is the TCP of the kernel that the judge itself runs on.
type hostStreams struct{ kernelStreams }

// Dial implements conformance.Streams.
func (n *hostStreams) Dial(to netip.AddrPort, timeout time.Duration) (conformance.Stream, error) {
	defer n.w.waiting("a stream to " + to.String())()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if timeout >= 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-n.w.end:
			cancel()
		}
	}()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.from, 0))}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", to, tcpError(err))
	}
	n.keep(c)
	return &kernelStream{n: &n.kernelStreams, c: c.(*net.TCPConn)}, nil
}

// Listen implements conformance.Streams.
func (n *hostStreams) Listen(port uint16) (conformance.Listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.from, port)))
	if err != nil {
		return nil, err
	}
	n.keep(l)
	return &kernelListener{&n.kernelStreams, l}, nil
}
