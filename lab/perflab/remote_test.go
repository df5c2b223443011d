package perflab

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf"
)

// between runs a benchmark between two emulated devices of a provider on the loopback network,
// through a TCP connection. It returns the errors of both sides.
func between(t *testing.T, provider string, server *Endpoint, b *Benchmark) (r *perf.Report, clientErr, serverErr error) {
	t.Helper()
	var ends [2]Endpoint
	for i := range ends {
		p := must.Get(nics.Find(provider))(t)
		opener := must.Get(p.NewOpener(nics.Setup{}))(t)
		addr := netip.AddrFrom4([4]byte{127, 76, 0, byte(1 + i)})
		ends[i] = Endpoint{Device: must.Get(opener.OnSockets(nics.NICConfig{Addr: addr}))(t)}
		defer ends[i].Device.Close()
	}
	if server != nil {
		ends[1].Port = server.Port
	}
	l := must.Get(net.Listen("tcp", "127.76.0.2:0"))(t)
	served := make(chan error, 1)
	go func() { served <- ends[1].Serve(t.Context(), l) }()
	r, clientErr = ends[0].Run(t.Context(), b, l.Addr().String())
	return r, clientErr, <-served
}

func TestBenchmarksBetweenDevices(t *testing.T) {
	for _, c := range []struct {
		provider string
		b        Benchmark
	}{
		{"softroce", Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat, Verb: "write", Sizes: []int{8, 64}, Repeat: 2, Load: perf.Load{Iterations: 50}}}},
		{"softroce", Benchmark{Benchmark: perf.Benchmark{Kind: perf.BW, Verb: "read", Load: perf.Load{Iterations: 50, QPs: 2}}, Transport: "xrc"}},
		{"softiwarp", Benchmark{Benchmark: perf.Benchmark{Kind: perf.MsgRate, Load: perf.Load{Iterations: 200}}}},
		{"softroce", Benchmark{Benchmark: perf.Benchmark{Kind: perf.Register, Load: perf.Load{Iterations: 50}}}},
	} {
		r, err, serverErr := between(t, c.provider, nil, &c.b)
		if err != nil || serverErr != nil {
			t.Fatalf("%v: %v, %v", c.b.Kind, err, serverErr)
		}
		if len(r.Rows) != len(c.b.Sizes)*c.b.Repeat || r.Rows[0].Value <= 0 && r.Rows[0].Transfer == nil {
			t.Errorf("%v: rows %+v", c.b.Kind, r.Rows)
		}
	}
}

// Each side has the error of the other.
func TestErrorsReachBothHosts(t *testing.T) {
	b := Benchmark{Benchmark: perf.Benchmark{Kind: perf.Lat}}
	_, err, serverErr := between(t, "softroce", &Endpoint{Port: 7}, &b)
	if err == nil || !strings.Contains(err.Error(), "the other side has failed") || serverErr == nil {
		t.Errorf("client: %v; server: %v", err, serverErr)
	}
	b.Transport = "rd"
	_, err, serverErr = between(t, "softroce", nil, &b)
	if err == nil || serverErr == nil || !strings.Contains(serverErr.Error(), "the device has no transport rd") {
		t.Errorf("client: %v; server: %v", err, serverErr)
	}
}

func TestCancelEndsServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- Endpoint{}.Serve(ctx, l) }()
	cancel()
	if err := <-served; err == nil {
		t.Error("a server without a client has ended without an error")
	}
}

func TestServerRefusesStrangers(t *testing.T) {
	for _, text := range []string{"GET / HTTP/1.0\r\n\r\n", "\x00\x00\x00\x0d\x00{\"Version\":9}", "\x00"} {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		served := make(chan error, 1)
		go func() { served <- Endpoint{}.Serve(t.Context(), l) }()
		c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
		must.Get(c.Write([]byte(text)))(t)
		_ = c.(*net.TCPConn).CloseWrite() // the server may have closed the connection
		if err := <-served; err == nil {
			t.Errorf("%q was served", text)
		}
		c.Close()
	}
}
