package softiwarp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// loopback opens a device on an address of the loopback network, which needs no
// privilege.
func loopback(t testing.TB, addr string, cfg Config) *Device {
	t.Helper()
	cfg.Name, cfg.Addrs = addr, []netip.Addr{netip.MustParseAddr(addr)}
	d := must.Get(OnTCP(tcplink.Config{}, cfg))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// All framings work over TCP sockets, in both directions, with and without alignment to segments.
func TestFramingsOverTCPSockets(t *testing.T) {
	for i := range 8 {
		cfg := func(on bool) Config {
			return Config{NIC: engine.Config{MPA: mpa.Config{Markers: on, NoCRC: i&4 == 0, Align: i&4 != 0}}}
		}
		a, b := loopback(t, fmt.Sprintf("127.81.5.%d", 2*i+2), cfg(i&1 != 0)), loopback(t, fmt.Sprintf("127.81.5.%d", 2*i+3), cfg(i&2 != 0))
		if err := echo(t, a, b, 30); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if n := counter(a, "mpa_rcvd_markers"); (n > 0) != (i&1 != 0) {
			t.Errorf("%d: a received %d markers", i, n)
		}
	}
}

// Accept times out if the requester does not send its RTR. The stream is reset, and the queue pair
// fails.
func TestAcceptTimeout(t *testing.T) {
	d := loopback(t, "127.81.6.2", Config{})
	e := newEnd(t, d)
	l := listen(t, d, netip.AddrPortFrom(d.cfg.Addrs[0], 0))
	c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	defer c.Close()
	start := wire.StartFrame{Revision: wire.RevisionEnhanced, CRC: true, Enhanced: true}
	start.PrivateData = (&wire.Enhanced{PeerToPeer: true, RTRWrite: true}).Append(nil)
	must.Get(c.Write(start.Append(nil)))(t)
	req := must.Get(l.GetRequest(30 * time.Second))(t)
	before := time.Now()
	_, err := req.Accept(e.QP, connParam, 50*time.Millisecond)
	must.Fail(t, "accept", err, verbs.ErrTimeout, c.LocalAddr().String())
	if took := time.Since(before); took < 50*time.Millisecond {
		t.Errorf("timeout after %v", took)
	}
	if got, err := io.ReadAll(c); err == nil || len(got) != wire.StartFrameLen+wire.EnhancedLen {
		t.Errorf("the requester got %x, %v; want the Reply and a reset", got, err)
	}
	if a, err := e.QP.Query(); err != nil || a.State != verbs.QPStateErr {
		t.Errorf("the queue pair is in %v, %v", a.State, err)
	}
}

// A capture of sockets has the bytes of both sides.
func TestCaptureOfSockets(t *testing.T) {
	var file bytes.Buffer
	c := pcaplink.NewCapture(&file, pcaplink.Options{})
	a := loopback(t, "127.81.7.2", Config{Decorate: func(n link.StreamWaiter) link.StreamWaiter {
		return c.WrapStreams("a", n).(link.StreamWaiter)
	}})
	b := loopback(t, "127.81.7.3", Config{})
	must.Do(t, echo(t, a, b, 5))
	must.Do(t, a.Close())
	must.Do(t, c.Close())
	for _, key := range []string{wire.RequestKey, wire.ReplyKey} {
		if !bytes.Contains(file.Bytes(), []byte(key)) {
			t.Errorf("a capture of %d bytes lacks %q", file.Len(), key)
		}
	}
	if n := counter(a, "tcp_sent_octets"); n == 0 || n != counter(a, "mpa_sent_octets") {
		t.Errorf("%d octets were sent, MPA counts %d", n, counter(a, "mpa_sent_octets"))
	}
}

// Streams without a Request occupy the backlog of a listener until the request timeout.
func TestStreamsWithoutRequestFillBacklog(t *testing.T) {
	t.Parallel()
	d := loopback(t, "127.81.0.9", Config{NIC: engine.Config{MPA: mpa.Config{RequestTimeout: 3 * time.Second}}})
	l := must.Get(d.cm.Listen(netip.AddrPortFrom(d.cfg.Addrs[0], 0), verbs.PortSpaceTCP, 2))(t)
	defer l.Close()
	dial := func() net.Conn {
		t.Helper()
		c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
	withoutRequest := []net.Conn{dial(), dial()}
	for deadline := time.Now().Add(30 * time.Second); counter(d, "conns") < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the streams are not accepted")
		}
	}
	// The reset may arrive before Dial returns.
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a stream beyond the backlog received %d octets", n)
		}
		c.Close()
	}
	if n := counter(d, "cm_backlog_full"); n != 1 || counter(d, "conns") != 2 {
		t.Errorf("%d beyond the backlog, %d accepted", n, counter(d, "conns"))
	}
	for _, c := range withoutRequest {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a stream without a Request received %d octets", n)
		}
	}
	if n := counter(d, "mpa_timeouts"); n != 2 {
		t.Errorf("%d timeouts", n)
	}
	friend := loopback(t, "127.81.0.10", Config{})
	if err := echo(t, friend, d, 2); err != nil {
		t.Errorf("echo after the timeouts: %v", err)
	}
}
