package pcaplink

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// simulate sends packets over a lossy simulated link and returns the capture of both ends.
func simulate(t *testing.T, seed uint64) []byte {
	t.Helper()
	var file bytes.Buffer
	c := NewCapture(&file, Options{})
	w := sim.New(sim.Config{Seed: seed})
	addr := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:49441"), netip.MustParseAddrPort("10.0.0.2:4791")}
	l := sim.LinkConfig{RateBps: 8e9, Latency: time.Microsecond}
	a, b, err := sim.NewPair(w, sim.NetConfig{},
		sim.PortConfig{Addrs: []netip.Addr{addr[0].Addr()}, Link: l, Up: impair.Config{Specs: []impair.Spec{{LossPPM: 300_000}}}},
		sim.PortConfig{Addrs: []netip.Addr{addr[1].Addr()}, Link: l})
	if err != nil {
		t.Fatal(err)
	}
	wa, wb := c.Wrap("a", a), c.Wrap("b", b)
	if _, ok := wa.(link.GroupLink); !ok {
		t.Error("a wrapped port is no GroupLink any more")
	}
	b.OnReadable(sim.HandlerFunc(func(now mono.Time, _ uint64) {
		var ds [4]link.Datagram
		must.Get(wb.Recv(now, ds[:]))(t)
	}), 0)
	for i := range 20 {
		w.AtFunc(mono.Time(i*1000), func() {
			d := link.Datagram{Src: addr[0], Dst: addr[1], IPID: link.IPIDUnknown, Payload: make([]byte, 72)}
			must.Get(wa.Send(w.Now(), []link.Datagram{d}))(t)
		})
	}
	must.Do(t, w.Run())
	must.Do(t, c.Close())
	return file.Bytes()
}

func TestCaptureOfSimulatedRunIsReproducible(t *testing.T) {
	file := simulate(t, 1)
	if !bytes.Equal(file, simulate(t, 1)) {
		t.Error("seed 1 wrote two files")
	}
	if bytes.Equal(file, simulate(t, 2)) {
		t.Error("seeds 1 and 2 wrote the same file")
	}
	sent, received := 0, 0
	for _, r := range read(t, file) {
		at := r.at.UnixNano()
		switch r.intf {
		case "a":
			if at != int64(sent)*1000 {
				t.Errorf("packet %d sent at %d", sent, at)
			}
			sent++
		case "b": // 100 bytes of IP at a byte a nanosecond, and the cable
			if at%1000 != 100 {
				t.Errorf("received at %d", at)
			}
			received++
		}
	}
	if sent != 20 || received == 0 || received == 20 {
		t.Errorf("%d sent, %d received: want 20 and fewer", sent, received)
	}
}
