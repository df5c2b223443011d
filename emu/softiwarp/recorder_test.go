package softiwarp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// recorder records the bytes that the streams of a net write and read.
type recorder struct {
	link.StreamNet
	sent, got *[]byte
}

func (r recorder) Dial(now mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	s, err := r.StreamNet.Dial(now, local, remote)
	return recordedStream{s, r}, err
}

type recordedStream struct {
	link.StreamLink
	r recorder
}

func (s recordedStream) Writev(now mono.Time, bufs [][]byte, more bool) (int, error) {
	n, err := s.StreamLink.Writev(now, bufs, more)
	left := n
	for _, b := range bufs {
		b = b[:min(len(b), left)]
		*s.r.sent = append(*s.r.sent, b...)
		left -= len(b)
	}
	return n, err
}

func (s recordedStream) Read(now mono.Time, b []byte) (int, error) {
	n, err := s.StreamLink.Read(now, b)
	*s.r.got = append(*s.r.got, b[:n]...)
	return n, err
}

// recordEcho returns the bytes that the client of a short echo writes and reads.
func recordEcho(t *testing.T, cfg Config) (sent, got []byte) {
	t.Helper()
	w := sim.New(sim.Config{Seed: 1})
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, sim.PortConfig{Addrs: []netip.Addr{addrA}}, sim.PortConfig{Addrs: []netip.Addr{addrB}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := InWorld(w, pa, recorder{pa.StreamHost(), &sent, &got}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb.StreamHost(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Go("server", func(*sim.Proc) error { return echoServer(b, 20, func() {}) })
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		return echoClient(a, addrB, 20)
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	return sent, got
}
