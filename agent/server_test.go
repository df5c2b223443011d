package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestMain(m *testing.M) {
	testutil.SetParallel(16)
	os.Exit(m.Run())
}

func TestHostCalls(t *testing.T) {
	s := newTestAgent(t)
	c := s.client(t)
	id := must.Get(c.Identity())(t)
	want, _ := s.fakeHost.Identity()
	if id.Hostname != want.Hostname || id.Devices[0].Info != fakeInfo || id.Devices[0].Addrs[0] != want.Devices[0].Addrs[0] {
		t.Errorf("%+v", id)
	}
	if infos := must.Get(c.Devices())(t); len(infos) != 1 || infos[0] != fakeInfo || c.Agent() == "" {
		t.Errorf("%+v of %s", infos, c.Agent())
	}
	if _, err := c.Open("fake9"); !errors.Is(err, verbs.ErrNotFound) || !strings.Contains(err.Error(), "fake9") {
		t.Error(err)
	}
	must.Do(t, errors.Join(c.SetLink("fake0", true), c.SetAddress("fake0", netip.MustParsePrefix("fd00::1/64"), false)))
	dev := must.Get(c.Open("fake0"))(t)
	if err := c.Restart("fake0"); !errors.Is(err, ErrHostCannot) || !errors.Is(err, verbs.ErrNotSupported) {
		t.Error(err)
	}
	if n := s.device(0).openObjects(); len(n) != 0 {
		t.Errorf("restarted with %v open", n)
	}
	if err := dev.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
	if got := []string{"link fake0 true", "address fake0 fd00::1/64 false", "restart fake0"}; !slices.Equal(s.calls, got) {
		t.Errorf("the host got the calls %q", s.calls)
	}
}

// A client with another key gets no hello, and no device is opened.
func TestWrongKeyIsRejected(t *testing.T) {
	var log bytes.Buffer
	s := newTestAgent(t, func(s *Server) { s.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		if _, err := Dial(t.Context(), s.addr, NewKey()); !errors.Is(err, ErrKey) {
			t.Errorf("another key: %v", err)
		}
	}
	// An agent must not accept another agent, nor a client a client: the ends have different keys.
	wrong := must.Get(tlsConfig(s.Key, roleAgent, roleClient))(t)
	conn, err := tls.Dial("tcp", s.addr, wrong)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		conn.Close()
	}
	if err == nil {
		t.Error("an agent accepts an agent")
	}
	for _, first := range []string{"GET / HTTP/1.1\r\n\r\n", string(helloFrame(Version, newHello("", 0))), strings.Repeat("\xff", 4096)} {
		raw := must.Get(net.Dial("tcp", s.addr))(t)
		io.WriteString(raw, first) // the agent may have disconnected
		answer, _ := io.ReadAll(raw)
		if bytes.Contains(answer, []byte("fabrictest")) {
			t.Errorf("%q is greeted", first)
		}
		raw.Close()
	}
	eventually(t, "all are counted", func() bool { return s.Stats().Unauthenticated >= 5 })
	if st := s.Stats(); st.Clients != 0 || len(s.opened) != 0 {
		t.Errorf("%+v", st)
	}
	s.client(t) // the agent still accepts clients
	s.stop()
	if n := strings.Count(log.String(), "refused a connection"); n == 0 || n > 3 {
		t.Errorf("%d lines about strangers:\n%s", n, log.String())
	}
}

// A handshake that does not complete times out.
func TestSlowHandshakeTimesOut(t *testing.T) {
	t.Parallel()
	s := newTestAgent(t, func(s *Server) { s.Timing.HandshakeTimeout = 100 * time.Millisecond })
	for range maxHandshakesFrom {
		raw := must.Get(net.Dial("tcp", s.addr))(t)
		defer raw.Close()
		raw.Write([]byte{22, 3, 1}) // an incomplete TLS record
	}
	eventually(t, "all had their time", func() bool { return s.Stats().Unauthenticated == maxHandshakesFrom })
}

// One client holds a device at a time, until it closes the device or disconnects.
func TestDeviceIsHeldByOneClient(t *testing.T) {
	s := newTestAgent(t)
	one, two := s.client(t), s.client(t)
	first := must.Get(one.Open("fake0"))(t)
	second := must.Get(one.Open("fake0"))(t)
	for _, err := range []error{
		func() error { _, err := two.Open("fake0"); return err }(),
		two.SetLink("fake0", false), two.Restart("fake0"),
	} {
		if !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("a second client: %v", err)
		}
	}
	must.Do(t, first.Close())
	if _, err := two.Open("fake0"); !errors.Is(err, verbs.ErrBusy) {
		t.Error(err)
	}
	must.Do(t, second.Close())
	must.Get(two.Open("fake0"))(t)
	two.Close()
	eventually(t, "the device is free", func() bool { _, err := one.Open("fake0"); return err == nil })
}

// populate opens one object of each kind, and starts several blocking calls.
func populate(t *testing.T, dev verbs.Context) (waits []chan error) {
	t.Helper()
	pd := must.Get(dev.AllocPD())(t)
	ch := must.Get(dev.CreateCompChannel())(t)
	cq := must.Get(dev.CreateCQ(verbs.CQInit{Channel: ch}))(t)
	must.Get(dev.OpenXRCD())(t)
	must.Get(dev.CreateSRQ(verbs.SRQInit{PD: pd}))(t)
	must.Get(dev.CreateQP(verbs.QPInit{PD: pd, SendCQ: cq, RecvCQ: cq}))(t)
	must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 100)}))(t)
	must.Get(pd.AllocMW(verbs.MWType1))(t)
	must.Get(pd.CreateAH(verbs.AHAttr{}))(t)
	cm := must.Get(dev.CM())(t)
	l := must.Get(cm.Listen(netip.AddrPort{}, verbs.PortSpaceTCP, 1))(t)
	conn := must.Get(cm.Connect(nil, netip.AddrPort{}, verbs.ConnParam{}, time.Second))(t)
	for _, wait := range []func() error{
		func() error { _, err := dev.WaitAsync(verbs.Forever); return err },
		func() error { _, err := ch.Wait(verbs.Forever); return err },
		func() error { _, err := l.GetRequest(verbs.Forever); return err },
		func() error { return conn.WaitDisconnect(verbs.Forever) },
	} {
		done := make(chan error, 1)
		go func() { done <- wait() }()
		waits = append(waits, done)
	}
	must.Get(dev.QueryPort(1))(t) // other calls do not wait
	return waits
}

const populated = 11 // objects, with the device

// When a connection ends, the agent closes everything opened over it, and the client's calls fail.
func TestConnectionEndClosesEverything(t *testing.T) {
	for name, end := range map[string]struct {
		do     func(*testAgent, *Client, net.Conn)
		reason string
	}{
		"the client closes":                {func(_ *testAgent, c *Client, _ net.Conn) { c.Close() }, "the client was closed"},
		"the connection breaks":            {func(_ *testAgent, _ *Client, raw net.Conn) { raw.Close() }, ""},
		"the agent stops":                  {func(s *testAgent, _ *Client, _ net.Conn) { s.stop() }, "is stopping"},
		"the client violates the protocol": {func(_ *testAgent, c *Client, _ net.Conn) { c.out(control.Frame{Kind: 99}) }, "kind 0x63"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestAgent(t)
			raw := must.Get(net.Dial("tcp", s.addr))(t)
			c := must.Get(NewClient(t.Context(), raw, s.Key, testTiming))(t)
			dev := must.Get(c.Open("fake0"))(t)
			fake := s.device(0)
			waits := populate(t, dev)
			if n := len(fake.openObjects()); n != populated {
				t.Errorf("%d objects are open: %v", n, fake.openObjects())
			}
			end.do(s, c, raw)
			for _, w := range waits {
				if err := <-w; !errors.Is(err, ErrLost) || !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("a wait ended with %v", err)
				}
			}
			<-c.Lost()
			if !strings.Contains(c.Err().Error(), end.reason) {
				t.Errorf("the error is %q", c.Err())
			}
			if _, err := dev.QueryPort(1); !errors.Is(err, ErrLost) || !errors.Is(c.Err(), ErrLost) {
				t.Errorf("%v, client: %v", err, c.Err())
			}
			eventually(t, "everything is closed", func() bool { return len(fake.openObjects()) == 0 })
			fake.mu.Lock()
			defer fake.mu.Unlock()
			// Each object is closed once, after the objects made from it.
			if n := len(fake.closed); n != populated || fake.closed[n-1] != "device" || fake.closed[n-2] != "pd" {
				t.Errorf("closed in this order: %v", fake.closed)
			}
		})
	}
}

// rawClient returns a connection of an authenticated client, which has sent a hello.
func (s *testAgent) rawClient(t *testing.T, hello []byte) (net.Conn, *control.Conn) {
	t.Helper()
	config := must.Get(tlsConfig(s.Key, roleClient, roleAgent))(t)
	conn := must.Get(tls.Dial("tcp", s.addr, config))(t)
	t.Cleanup(func() { conn.Close() })
	must.Do(t, must.Err(conn.Write(hello)))
	return conn, newConn(conn, testTiming, control.Reply)
}

// helloFrame returns a hello of the given version.
func helloFrame(version uint64, h *hello) []byte {
	body, _ := json.Marshal(h) // it cannot fail
	return control.Frame{Kind: control.Hello, Num: version, Body: body}.Append(nil)
}

// fakeAgent returns a connection to an agent that sends hello and nothing else.
func fakeAgent(key Key, hello []byte) net.Conn {
	near, far := net.Pipe()
	go func() {
		config, _ := tlsConfig(key, roleAgent, roleClient)
		conn := tls.Server(far, config)
		conn.Write(hello)         // an error appears at the other end
		io.Copy(io.Discard, conn) // until it disconnects
	}()
	return near
}

// An idle client is disconnected, and so is an idle agent.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	const silence = 2 * time.Second // long enough for heartbeats on a busy machine
	impatient := func(s *Server) { s.Timing.IdleTimeout = silence }
	for name, test := range map[string]func(*testing.T){
		"a client without heartbeats": func(t *testing.T) {
			s := newTestAgent(t, impatient)
			_, conn := s.rawClient(t, helloFrame(Version, newHello("", time.Hour)))
			device := "fake0"
			call := encode([]byte{0, byte(callOpen.number)}, &device, nil)
			must.Do(t, conn.Write(control.Frame{Kind: control.Call, Num: 1, Body: call}))
			eventually(t, "the device is opened", func() bool { return s.fakeHost.count() == 1 })
			eventually(t, "the device is closed", func() bool { return len(s.device(0).openObjects()) == 0 })
		},
		// The heartbeat interval follows the idle timeout of the agent.
		"a client that waits longer than the timeout": func(t *testing.T) {
			s := newTestAgent(t, impatient)
			alive := must.Get(NewClient(t.Context(), must.Get(net.Dial("tcp", s.addr))(t), s.Key, Timing{HeartbeatInterval: time.Hour}))(t)
			defer alive.Close()
			dev := must.Get(alive.Open("fake0"))(t)
			if _, err := dev.WaitAsync(silence * 5 / 4); !errors.Is(err, verbs.ErrTimeout) {
				t.Errorf("a call that waits longer than the idle timeout: %v", err)
			}
		},
		"a client that never completes a frame": func(t *testing.T) {
			slow, _ := newTestAgent(t, impatient).rawClient(t, helloFrame(Version, newHello("", time.Hour)))
			whole := control.Frame{Kind: control.Call, Body: make([]byte, 1<<16)}.Append(nil)
			for b := whole[:20]; ; b = []byte{0} {
				if _, err := slow.Write(b); err != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		},
		"an agent without heartbeats": func(t *testing.T) {
			key := NewKey()
			client := must.Get(NewClient(t.Context(), fakeAgent(key, helloFrame(Version, newHello("", time.Hour))), key, Timing{IdleTimeout: 100 * time.Millisecond}))(t)
			if _, err := client.Identity(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "no data") {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // all of them wait
			test(t)
		})
	}
}

// A panic in a device fails one call, and neither the client nor the agent.
func TestPanicInCallIsReported(t *testing.T) {
	s := newTestAgent(t)
	_, dev, fake := s.dev(t)
	fake.panic = true
	if _, err := dev.QueryPort(1); err == nil || !strings.Contains(err.Error(), "fake trouble") {
		t.Error(err)
	}
	fake.panic = false
	must.Get(dev.QueryPort(1))(t)
	if s.Stats().Crashes != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// A device that blocks in a call stays held until the call returns, and does not block the agent.
func TestStuckDeviceStaysHeld(t *testing.T) {
	s := newTestAgent(t, func(s *Server) { s.Timing.CloseTimeout = 50 * time.Millisecond })
	c, dev, fake := s.dev(t)
	fake.hang, fake.hung = make(chan struct{}), make(chan struct{})
	go dev.QueryDevice() // it returns when the connection ends
	<-fake.hung
	c.Close()
	eventually(t, "it is given up", func() bool { return s.Stats().StuckClients == 1 })
	other := s.client(t)
	if _, err := other.Open("fake0"); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("a stuck device for another client: %v", err)
	}
	close(fake.hang)
	eventually(t, "it is free", func() bool { _, err := other.Open("fake0"); return err == nil })
}

func TestVersionMismatch(t *testing.T) {
	k := NewKey()
	meet := func(version uint64, h *hello) error {
		c, err := NewClient(t.Context(), fakeAgent(k, helloFrame(version, h)), k, testTiming)
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, c := range []struct {
		version uint64
		h       *hello
		want    string
	}{
		{Version + 1, newHello("new", time.Hour), "update this program"},
		{Version - 1, newHello("old", time.Hour), "update the agent"},
		{Version, &hello{protocolHash + 1, "other 1.7", time.Hour}, "other 1.7"},
	} {
		if err := meet(c.version, c.h); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.h, err)
		}
	}
	must.Do(t, meet(Version, newHello("", testTiming.IdleTimeout)))

	// The agent sends the same error to an old client.
	s := newTestAgent(t)
	_, old := s.rawClient(t, helloFrame(Version-1, newHello("", time.Hour)))
	must.Do(t, must.Err(readHello(old, testTiming.HandshakeTimeout, "", "")))
	var closed *control.CloseError
	if _, err := old.Read(); !errors.As(err, &closed) || !strings.Contains(closed.Reason, "update the client") {
		t.Error(err)
	}
}

func TestDialErrors(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	ln := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	if _, err := Dial(ctx, ln.Addr().String(), NewKey()); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("a listener that never answers: %v", err)
	}
	if _, err := Dial(ctx, "127.0.0.1:1", Key{}); err == nil {
		t.Error("Dial succeeded without an agent")
	}
}

// Registration fails beyond the memory limit of the agent, and the client continues.
func TestRegistrationBeyondMemoryLimitFails(t *testing.T) {
	s := newTestAgent(t, func(s *Server) { s.MaxMemory = 1 << 20 })
	dev := must.Get(s.client(t).Open("fake0"))(t)
	pd := must.Get(dev.AllocPD())(t)
	if _, err := pd.RegMR(verbs.MRInit{Buf: make([]byte, 1<<20+1)}); !errors.Is(err, verbs.ErrNoMemory) {
		t.Errorf("a byte too much: %v", err)
	}
	must.Get(pd.RegMR(verbs.MRInit{Buf: make([]byte, 1<<19)}))(t)
}
