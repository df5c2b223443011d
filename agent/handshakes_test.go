package agent

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Idle connections are displaced at once, before the handshake timeout.
func TestClientConnectsDespiteIdleConnections(t *testing.T) {
	var log bytes.Buffer
	s := newTestAgent(t, func(s *Server) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	const idle = 2 * maxHandshakes
	for range idle {
		raw := must.Get(net.Dial("tcp", s.addr))(t)
		defer raw.Close()
	}
	eventually(t, "all but some are closed", func() bool { return s.Stats().Displaced == idle-maxHandshakesFrom })
	s.client(t)
	s.stop()
	if n := strings.Count(log.String(), errDisplaced.Error()); n == 0 || n > idle/4 {
		t.Errorf("%d lines about idle connections:\n%s", n, log.String())
	}
}

// connFrom is a connection from an address.
type connFrom struct {
	net.Conn
	from   string
	closed bool
}

func (c *connFrom) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}
func (c *connFrom) Close() error { c.closed = true; return nil }

func TestHandshakeLimitDisplacesOldestOfAddress(t *testing.T) {
	var h handshakes
	other := &connFrom{from: "192.0.2.1:1"}
	h.begin(other)
	var all []*connFrom
	for _, from := range []string{"[2001:db8::1]:5", "[2001:db8::2]:5"} { // one network
		for range maxHandshakesFrom {
			all = append(all, &connFrom{from: from})
			h.begin(all[len(all)-1])
		}
	}
	for i, c := range all {
		if c.closed != (i < maxHandshakesFrom) {
			t.Errorf("connection %d: closed is %v", i, c.closed)
		}
	}
	if other.closed || len(h.all) != 1+maxHandshakesFrom {
		t.Errorf("%d, of another address %v", len(h.all), other.closed)
	}
}

func TestHandshakeLimitDisplacesOldest(t *testing.T) {
	var h handshakes
	first := &connFrom{from: "192.0.2.1:1"}
	p := h.begin(first)
	for i := range maxHandshakes - 1 {
		h.begin(&connFrom{from: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 1).String()})
	}
	if first.closed {
		t.Fatal("no connection was displaced")
	}
	last := h.begin(&connFrom{from: "203.0.113.1:1"})
	if !first.closed || !h.end(p) || h.end(last) || len(h.all) != maxHandshakes-1 {
		t.Errorf("closed %v, %d remain", first.closed, len(h.all))
	}
}
