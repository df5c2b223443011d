package bench

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A socket that stays open would take the port, and answer the device, of the next case.
func TestKernelStreamsCloseSockets(t *testing.T) {
	s := &kernelStreams{
		w: newRealWorld(), inNamespace: func(f func() error) error { return f() }, from: netip.MustParseAddr("127.0.0.1"),
	}
	l := must.Get(s.Listen(0))(t)
	device := must.Get(net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr())))(t)
	defer device.Close()
	stream := must.Get(l.Accept(-1))(t)
	s.close()
	if _, err := l.Accept(0); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("accept after close: %v", err)
	}
	if err := stream.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("write after close: %v", err)
	}
	if _, err := device.Read(make([]byte, 1)); !errors.Is(tcpError(err), conformance.ErrReset) {
		t.Errorf("the device read after close: %v, want a reset", err)
	}
}

// silentWire keeps packets that are sent, and receives none until it is closed.
type silentWire struct {
	openWire
	sent   [][]byte
	closed chan struct{}
}

func (w *silentWire) Discard()         {}
func (w *silentWire) Epoch() time.Time { return time.Time{} }

func (w *silentWire) Send(packet []byte) error {
	w.sent = append(w.sent, packet)
	return nil
}

func (w *silentWire) Recv(time.Duration) (conformance.Frame, error) {
	<-w.closed
	return conformance.Frame{}, verbs.ErrTimeout
}

// The MSS announced in a SYN leaves room for the headers, and for the timestamps of other hosts if
// the path has a smaller MTU than the link.
func TestUserSpaceTCPAnnouncesMSSOfPath(t *testing.T) {
	for _, c := range []struct {
		family, pathMTU int
		mss             uint16
	}{
		{4, 1500, 1500 - 20 - 20 - 12},
		{6, 1500, 1500 - 40 - 20 - 12},
		{4, 9000, 9000 - 20 - 20},
		{6, 9000, 9000 - 40 - 20},
	} {
		w := &silentWire{closed: make(chan struct{})}
		r := &realTimeCase{world: newRealWorld()}
		tcp := r.openTCP(w, new(conformance.Record), hostAddr(c.family, firstPeer), 9000, c.pathMTU)
		_, err := tcp.Dial(netip.AddrPortFrom(hostAddr(c.family, firstDevice), 7471), 0)
		if !errors.Is(err, verbs.ErrTimeout) || len(w.sent) == 0 {
			t.Fatalf("dial: %v, %d packets", err, len(w.sent))
		}
		options := w.sent[0][map[int]int{4: 20, 6: 40}[c.family]+20:] // after the IP and TCP headers
		if mss := binary.BigEndian.Uint16(options[2:]); options[0] != 2 || mss != c.mss {
			t.Errorf("IPv%d, path MTU %d: option %d with MSS %d, want 2 with %d", c.family, c.pathMTU, options[0], mss, c.mss)
		}
		close(w.closed)
		r.stop()
	}
}
