package interop

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// A tap on the loopback sees both directions of a connection, and every octet once
// although the loopback shows each frame twice.
func TestTapSeesBothDirectionsOnce(t *testing.T) {
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
	for _, write := range []struct {
		conn net.Conn
		b    []byte
	}{{client, startFrame(iwarp.KeyRequest, 0)}, {server, startFrame(iwarp.KeyReply, 0)}, {client, rtr}, {server, dirty}} {
		must.Do(t, must.Err(write.conn.Write(write.b)))
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

func TestOpenTapRejectsUnknownAddress(t *testing.T) {
	if tap, err := OpenTap(netip.MustParseAddr("192.0.2.77")); err == nil {
		tap.Close()
		t.Error("OpenTap succeeds for an address without an interface")
	}
}

func TestRetriesStalledCases(t *testing.T) {
	stalled := Outcome{Err: errStalled, Faults: Faults{Stalls: 1}}
	other := Outcome{Err: errTooLong, Faults: Faults{Side: Side{FPDUs: 3, DirtyPads: 1}}}
	for _, test := range []struct {
		what     string
		outcomes []Outcome
		want     Outcome
	}{
		{"first attempt", []Outcome{{}}, Outcome{}},
		{"third attempt", []Outcome{stalled, stalled, {}}, Outcome{Faults: Faults{Stalls: 2}}},
		{"all attempts stall", []Outcome{stalled, stalled, stalled}, Outcome{Err: errStalled, Faults: Faults{Stalls: 3}}},
		{"another error", []Outcome{stalled, other}, Outcome{Err: errTooLong, Faults: Faults{Stalls: 1, Side: Side{FPDUs: 3, DirtyPads: 1}}}},
	} {
		n := 0
		got := retryStalls(func() Outcome { n++; return test.outcomes[n-1] })
		if n != len(test.outcomes) || got.Faults != test.want.Faults || !errors.Is(got.Err, test.want.Err) {
			t.Errorf("%s: after %d attempts %v with %+v", test.what, n, got.Err, got.Faults)
		}
	}
}

// rawCM connects with MPA, sends one frame, and ignores the responses.
type rawCM struct{ verbs.CM }

func (rawCM) Connect(_ verbs.QP, addr netip.AddrPort, _ verbs.ConnParam, _ time.Duration) (verbs.Conn, error) {
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append([]byte("MPA ID Req Frame"), 0, 1, 0, 0)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 20)); err != nil {
		return nil, err
	}
	_, err = conn.Write(append([]byte{0, 14, 0xc1, 0x40}, make([]byte, 12+4)...))
	return rawConn{conn: conn}, err
}

type rawConn struct {
	verbs.Conn
	conn net.Conn
}

func (c rawConn) Disconnect() error { return c.conn.Close() }

// rawDevice has a rawCM, and queue pairs that drop sends.
type rawDevice struct{ *fakeDevice }

func (rawDevice) CM() (verbs.CM, error) { return rawCM{}, nil }

func (d rawDevice) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.fakeDevice.CreateQP(init)
	return rawQP{qp}, err
}

type rawQP struct{ verbs.QP }

func (rawQP) PostSend(wrs []verbs.SendWR) (int, error) { return len(wrs), nil }

// A guest that acknowledges our first frame and then sends nothing stalls the case:
// the attempt ends long before the timeout, with errStalled.
func TestMatrixDetectsStall(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	m := testMatrix()
	m.Guest = shellServer(t)
	m.Guest.IPv4, m.IPv4, m.stallTimeout = local, local, 200*time.Millisecond
	var err error
	if m.tap, err = OpenTap(local); errors.Is(err, os.ErrPermission) {
		t.Skipf("packet sockets are not permitted here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer m.tap.Close()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.ReadFull(conn, make([]byte, 20))
		_, _ = conn.Write(append([]byte("MPA ID Rep Frame"), 0, 1, 0, 0))
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}()
	c := Case{conformance.IWARP, RDMA, Client, IPv4, poll, 16}
	m.devices = map[Setup]verbs.Context{{Local: local}: rawDevice{newFabric().device(local)}}
	outcome := m.attempt(t.Context(), c, listener.Addr().(*net.TCPAddr).AddrPort().Port())
	if !errors.Is(outcome.Err, errStalled) || outcome.Faults.Stalls != 1 || outcome.Elapsed > m.Timeout/2 {
		t.Errorf("after %v: %v, %+v", outcome.Elapsed, outcome.Err, outcome.Faults)
	}
}
