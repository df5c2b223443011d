package softiwarp

import (
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/internal/must"
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
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	a := must.Get(InWorld(w, ports[0], recorder{ports[0].StreamHost(), &sent, &got}, cfg))(t)
	b := must.Get(InWorld(w, ports[1], ports[1].StreamHost(), cfg))(t)
	echoOf(a, b, 20).InWorld(t, w)
	must.Do(t, w.RunPrograms())
	return sent, got
}
