package dgiwarp

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// captureEcho runs the echo programs on a lossy cable and captures one side.
func captureEcho(t *testing.T, seed uint64, addrs [2]netip.Addr, file *bytes.Buffer) (lines []string) {
	t.Helper()
	w, ports := providertest.Cable{
		Seed: seed, Addrs: addrs, Up: impair.Config{Specs: []impair.Spec{{LossPPM: 20_000}}},
		Link: sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond},
	}.Open(t)
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	sent := func(d *link.Datagram) { // the fields that tshark prints
		lines = append(lines, fmt.Sprintf("%s %s %d %d %x %d", d.Src.Addr(), d.Dst.Addr(), d.Src.Port(), d.Dst.Port(), d.Payload, link.UDPHeaderLen+len(d.Payload)))
	}
	a := must.Get(InWorld(w, ports[0], providertest.Tap{PacketLink: c.Wrap("a", ports[0]), Sent: sent}, Config{}))(t)
	b := must.Get(InWorld(w, ports[1], ports[1], Config{}))(t)
	exchange{newEnd(t, a, reliable), newEnd(t, b, reliable), 20}.inWorld(w)
	must.Do(t, w.RunPrograms())
	must.Do(t, c.Close())
	return lines
}

func TestSameSeedGivesSameCapture(t *testing.T) {
	providertest.ExpectSameCapture(t, "", func(seed uint64, file *bytes.Buffer) {
		captureEcho(t, seed, [2]netip.Addr{addrA, addrB}, file)
	})
}

// tshark does not know the protocol: it sees that the packets are proper UDP.
func TestTsharkDecodesCaptures(t *testing.T) {
	for ip, addrs := range map[string][2]netip.Addr{
		"ip":   {netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")},
		"ipv6": {addrA, addrB},
	} {
		var file bytes.Buffer
		lines := captureEcho(t, 3, addrs, &file)
		// Only packets that our side sent: the tap has seen no others. Captures of
		// simulated links have no checksums.
		got := providertest.Tshark(t, file.Bytes(), "-Y", fmt.Sprintf("%s.src == %v", ip, addrs[0]),
			"-T", "fields", "-E", "separator= ", "-e", ip+".src", "-e", ip+".dst", "-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.payload",
			"-e", "udp.length")
		if !slices.Equal(got, lines) || len(lines) < 20 {
			t.Errorf("tshark sees\n%s\nwe sent\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}
