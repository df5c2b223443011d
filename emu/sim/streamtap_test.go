package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// tapped records every segment: port, direction, flags, sequence numbers and length.
func tapped(n *Net) *[]string {
	var all []string
	names := map[link.SegmentFlags]string{
		link.SYN: "syn", link.SYN | link.ACK: "syn+ack", link.ACK: "data", link.ACK | link.PSH: "push",
		link.FIN | link.ACK: "fin", link.RST | link.ACK: "reset",
	}
	n.SetStreamTap(func(_ mono.Time, p *Port, dir Direction, s *link.Segment) {
		direction := "in"
		if dir == Out {
			direction = "out"
		}
		all = append(all, fmt.Sprintf("%s %s %s %d/%d %d", p.Name(), direction, names[s.Flags], s.Seq, s.Ack, len(s.Payload)))
	})
	return &all
}

func TestStreamTapSeesEverySegmentTwice(t *testing.T) {
	s := newStreams(t, 1, NetConfig{Stream: StreamConfig{Events: []StreamEvent{{Offset: 300, Action: StreamCut}}}}, LinkConfig{MTU: 1052})
	got := tapped(s.a.Net()) // the SYN is in flight
	s.onAccept = func(e *end) { e.out = text(10); e.write(0) }
	s.dialed.out, s.dialed.fin = text(1000), true
	mustRun(t, s.w)
	must.Do(t, s.accepted.Abort(0))
	mustRun(t, s.w)
	want := []string{
		"h1 in syn 0/0 0", "h1 out syn+ack 0/1 0", "h1 out push 1/1 10",
		"h0 in syn+ack 0/1 0", "h0 out data 1/1 300", "h0 out push 301/1 700", "h0 out fin 1001/1 0",
		"h0 in push 1/1 10", "h1 in data 1/1 300", "h1 in push 301/1 700", "h1 in fin 1001/1 0",
		"h1 out reset 11/1002 0", "h0 in reset 11/1002 0",
	}
	if !slices.Equal(*got, want) {
		t.Errorf("got\n%q\nwant\n%q", *got, want)
	}
}

func TestStreamTapSeesResetsWithoutPeer(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{Latency: 10})
	mustRun(t, s.w)
	n := s.a.Net()
	must.Do(t, s.listener.Close())
	got := tapped(n)
	s.dial(t)
	mustRun(t, s.w)
	want := []string{"h0 out syn 0/0 0", "h1 in syn 0/0 0", "h1 out reset 0/1 0", "h0 in reset 0/1 0"}
	if !slices.Equal(*got, want) {
		t.Errorf("refused: got\n%q\nwant\n%q", *got, want)
	}
}

func TestStreamHostImplementsStreamNet(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, cut := range []uint32{0, 400_000} {
			linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
				w := New(Config{Seed: 1})
				t.Cleanup(w.Close)
				n := newNet(t, w, NetConfig{Stream: StreamConfig{CutPPM: cut, BufferBytes: 64 << 10}})
				addrs := []netip.Addr{addrOf(0), addrOf(1)}
				if v6 {
					addrs = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
				}
				link := LinkConfig{RateBps: 10e9, Latency: 1000}
				a := attach(t, n, PortConfig{Addrs: addrs[:1], Link: link})
				b := attach(t, n, PortConfig{Addrs: addrs[1:], Link: link})
				return linktest.StreamBench{
					A: a.StreamHost(), B: b.StreamHost(), AddrA: addrs[0], AddrB: addrs[1],
					TimeAfterArrival: func() mono.Time { mustRun(t, w); return w.Now() },
				}
			})
		}
	}
}
