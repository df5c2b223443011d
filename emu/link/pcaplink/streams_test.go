package pcaplink

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// hosts is two ports of a simulated world whose streams are captured.
type hosts struct {
	w            *sim.World
	a, b         link.StreamNet
	pa, pb       *sim.Port
	addrA, addrB netip.AddrPort
}

func simulatedHosts(t *testing.T, c *Capture, seed uint64, v6 bool, cfg sim.StreamConfig) *hosts {
	t.Helper()
	h := &hosts{w: sim.New(sim.Config{Seed: seed}), addrA: netip.MustParseAddrPort("10.0.0.1:0"), addrB: netip.MustParseAddrPort("10.0.0.2:7")}
	t.Cleanup(h.w.Close)
	if v6 {
		h.addrA, h.addrB = netip.MustParseAddrPort("[fd00::1]:0"), netip.MustParseAddrPort("[fd00::2]:7")
	}
	l := sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond, MTU: 1500}
	var err error
	h.pa, h.pb, err = sim.NewPair(h.w, sim.NetConfig{Stream: cfg},
		sim.PortConfig{Name: "a", Addrs: []netip.Addr{h.addrA.Addr()}, Link: l}, sim.PortConfig{Name: "b", Addrs: []netip.Addr{h.addrB.Addr()}, Link: l})
	if err != nil {
		t.Fatal(err)
	}
	h.a, h.b = link.StreamNet(h.pa.StreamHost()), link.StreamNet(h.pb.StreamHost())
	if c != nil {
		h.a, h.b = c.WrapStreams("a", h.a), c.WrapStreams("b", h.b)
	}
	return h
}

// settle runs the world until no event is pending, and returns the time.
func (h *hosts) settle(t *testing.T) mono.Time {
	t.Helper()
	must.Do(t, h.w.Run())
	return h.w.Now()
}

func TestWrappedStreamsAreStreamNet(t *testing.T) {
	linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
		c := NewCapture(io.Discard, Options{})
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		h := simulatedHosts(t, c, 1, true, sim.StreamConfig{CutPPM: 200_000, BufferBytes: 64 << 10})
		return linktest.StreamBench{
			A: h.a, B: h.b, AddrA: h.addrA.Addr(), AddrB: h.addrB.Addr(),
			TimeAfterArrival: func() mono.Time { return h.settle(t) },
		}
	})
}

// exchange exchanges bytes between a and b, and closes both directions.
func (h *hosts) exchange(t *testing.T, up, down []byte) {
	t.Helper()
	l := must.Get(h.b.Listen(h.addrB, 1))(t)
	d := must.Get(h.a.Dial(h.w.Now(), h.addrA, h.addrB))(t)
	h.settle(t)
	if !d.Connected(h.w.Now()) {
		t.Fatal("not connected")
	}
	a := must.Get(l.Accept(h.w.Now()))(t)
	half := len(up) / 2
	transfer := func(from, to link.StreamLink, b []byte) {
		t.Helper()
		for sent, got, buf := 0, 0, make([]byte, 4096); got < len(b); {
			third := sent + (len(b)-sent)/3
			n := must.Get(from.Writev(h.settle(t), [][]byte{b[sent:third], b[third:]}, false))(t)
			sent += n
			for {
				n := must.Get(to.Read(h.settle(t), buf))(t)
				if got += n; n == 0 {
					break
				}
			}
		}
	}
	transfer(d, a, up[:half])
	transfer(a, d, down)
	transfer(d, a, up[half:])
	for _, s := range []struct{ from, to link.StreamLink }{{d, a}, {a, d}} {
		must.Do(t, s.from.CloseWrite(h.settle(t)))
		must.Fail(t, "Read", must.Err(s.to.Read(h.settle(t), make([]byte, 1))), io.EOF)
	}
}

func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 131 >> 3)
	}
	return b
}

// capture captures the streams of a, by a tap of the simulated network or by WrapStreams.
func (h *hosts) capture(c *Capture, tap bool) {
	if !tap {
		h.a = c.WrapStreams("a", h.a)
		return
	}
	intf := c.AddInterface("a")
	h.pa.Net().SetStreamTap(func(now mono.Time, p *sim.Port, dir sim.Direction, s *link.Segment) {
		if p == h.pa {
			intf.WriteSegment(now, [...]Direction{sim.Out: Outbound, sim.In: Inbound}[dir], s)
		}
	})
}

// captured returns the capture of host a during exchange.
func captured(t *testing.T, seed uint64, v6, tap bool, opts Options, cfg sim.StreamConfig) []byte {
	t.Helper()
	var file bytes.Buffer
	c := NewCapture(&file, opts)
	h := simulatedHosts(t, nil, seed, v6, cfg)
	h.capture(c, tap)
	h.exchange(t, text(20_000), text(30_000)[7:])
	must.Do(t, c.Close())
	return file.Bytes()
}

func TestCaptureOfSimulatedStreamsIsReproducible(t *testing.T) {
	cfg := sim.StreamConfig{CutPPM: 300_000}
	for _, tap := range []bool{false, true} {
		one := captured(t, 1, true, tap, Options{}, cfg)
		if !bytes.Equal(one, captured(t, 1, true, tap, Options{}, cfg)) {
			t.Errorf("tap %v: two runs with seed 1 differ", tap)
		}
		if bytes.Equal(one, captured(t, 2, true, tap, Options{}, cfg)) {
			t.Errorf("tap %v: seeds 1 and 2 give the same file", tap)
		}
	}
}

// segments returns the segments of a file in the form "> SYN seq=0 ack=0 len=0", with
// relative sequence numbers.
func segments(t *testing.T, file []byte) (all []string) {
	t.Helper()
	first := map[layers.TCPPort]uint32{}
	for _, r := range read(t, file) {
		layer := layers.LayerTypeIPv4
		if r.data[0]>>4 == 6 {
			layer = layers.LayerTypeIPv6
		}
		p := gopacket.NewPacket(r.data, layer, gopacket.Default)
		tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if tcp == nil {
			t.Fatalf("no TCP in % x", r.data)
		}
		if tcp.SYN {
			first[tcp.SrcPort] = tcp.Seq
		}
		line := ">"
		if tcp.SrcPort == 7 {
			line = "<"
		}
		for _, f := range []struct {
			set  bool
			name string
		}{{tcp.SYN, "SYN"}, {tcp.FIN, "FIN"}, {tcp.RST, "RST"}, {tcp.PSH, "PSH"}} {
			if f.set {
				line += " " + f.name
			}
		}
		all = append(all, fmt.Sprintf("%s seq=%d ack=%d len=%d", line, tcp.Seq-first[tcp.SrcPort], max(tcp.Ack, first[tcp.DstPort])-first[tcp.DstPort], len(tcp.Payload)))
	}
	return all
}

func TestStreamsAreCapturedAsSegments(t *testing.T) {
	cfg := sim.StreamConfig{Events: []sim.StreamEvent{{Conn: 1, Offset: 300, Action: sim.StreamCut}}}
	run := func(tap bool) []string {
		var file bytes.Buffer
		c := NewCapture(&file, Options{})
		h := simulatedHosts(t, nil, 1, false, cfg)
		h.capture(c, tap)
		h.exchange(t, text(4000), text(100))
		must.Do(t, c.Close())
		return segments(t, file.Bytes())
	}
	for _, tc := range []struct {
		name string
		tap  bool
		want []string
	}{
		{"decorator", false, []string{
			"> SYN seq=0 ack=0 len=0", "< SYN seq=0 ack=1 len=0", "> seq=1 ack=1 len=0",
			"> seq=1 ack=1 len=1448", "> PSH seq=1449 ack=1 len=552",
			"< PSH seq=1 ack=2001 len=100",
			"> seq=2001 ack=101 len=1448", "> PSH seq=3449 ack=101 len=552",
			"> FIN seq=4001 ack=101 len=0", "< FIN seq=101 ack=4002 len=0", "> seq=4002 ack=102 len=0",
		}},
		{"tap", true, []string{ // shows the split segment, and only segments of the network
			"> SYN seq=0 ack=0 len=0", "< SYN seq=0 ack=1 len=0",
			"> seq=1 ack=1 len=300", "> seq=301 ack=1 len=1448", "> PSH seq=1749 ack=1 len=252",
			"< PSH seq=1 ack=2001 len=100",
			"> seq=2001 ack=101 len=1448", "> PSH seq=3449 ack=101 len=552",
			"> FIN seq=4001 ack=101 len=0", "< FIN seq=101 ack=4002 len=0",
		}},
	} {
		got := run(tc.tap)
		for i := range max(len(got), len(tc.want)) {
			g, w := "none", "none"
			if i < len(got) {
				g = got[i]
			}
			if i < len(tc.want) {
				w = tc.want[i]
			}
			if g != w {
				t.Errorf("%s: packet %d: %s, want %s", tc.name, i, g, w)
			}
		}
	}
}

func TestResetsAndRefusalsAreCaptured(t *testing.T) {
	var file bytes.Buffer
	c := NewCapture(&file, Options{})
	h := simulatedHosts(t, nil, 1, true, sim.StreamConfig{})
	h.a = c.WrapStreams("a", h.a)
	dial := func() link.StreamLink {
		d := must.Get(h.a.Dial(h.w.Now(), h.addrA, h.addrB))(t)
		return d
	}
	must.Fail(t, "settle", must.Err(dial().Read(h.settle(t), make([]byte, 1))), link.ErrRefused)
	l := must.Get(h.b.Listen(h.addrB, 4))(t)
	d := dial()
	if d.Connected(h.settle(t)); d.Abort(h.w.Now()) != nil {
		t.Fatal("Abort")
	}
	d = dial()
	d.Connected(h.settle(t))
	must.Do(t, l.Close())
	must.Fail(t, "settle", must.Err(d.Read(h.settle(t), make([]byte, 1))), link.ErrReset)
	must.Do(t, c.Close())
	want := []string{
		"> SYN seq=0 ack=0 len=0", "< RST seq=0 ack=1 len=0",
		"> SYN seq=0 ack=0 len=0", "< SYN seq=0 ack=1 len=0", "> seq=1 ack=1 len=0", "> RST seq=1 ack=1 len=0",
		"> SYN seq=0 ack=0 len=0", "< SYN seq=0 ack=1 len=0", "> seq=1 ack=1 len=0", "< RST seq=1 ack=1 len=0",
	}
	got := segments(t, file.Bytes())
	if fmt.Sprint(got[2:]) != fmt.Sprint(want[2:]) || got[0] != want[0] {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
