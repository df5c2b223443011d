package interop

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A tap on the loopback sees a connection, both of its ways, and every octet once
// although the loopback shows each frame coming and going.
func TestTap(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	tap, err := OpenTap(local)
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("packet sockets are not permitted here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	w := NewMonitor(listener.Addr().(*net.TCPAddr).AddrPort().Port())
	tap.Feed(w)
	client := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
	defer client.Close()
	server := must.Get(listener.Accept())(t)
	defer server.Close()
	for _, say := range []struct {
		who net.Conn
		b   []byte
	}{{client, startFrame(iwarp.KeyRequest, 0)}, {server, startFrame(iwarp.KeyReply, 0)}, {client, rtr}, {server, dirty}} {
		must.Do(t, must.Err(say.who.Write(say.b)))
	}
	// Both ends have the same address, so all is ours.
	want := TapReport{Connections: 1, Ours: Side{FPDUs: 2, DirtyPads: 1}}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := w.Report(local)
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("saw %+v, want %+v", got, want)
		}
	}
}

func TestTapNeedsAnInterface(t *testing.T) {
	if tap, err := OpenTap(netip.MustParseAddr("192.0.2.77")); err == nil {
		tap.Close()
		t.Error("a tap on an address that no interface has")
	}
}
