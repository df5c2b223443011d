package softroce

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
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// captureEcho runs the echo programs on a lossy cable and captures one side.
func captureEcho(t *testing.T, seed uint64, v6 bool, file *bytes.Buffer) []string {
	t.Helper()
	addrs := [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}
	if v6 {
		addrs = [2]netip.Addr{addrA, addrB}
	}
	w, ports := providertest.Cable{
		Seed: seed, Addrs: addrs, Up: impair.Config{Specs: []impair.Spec{{LossPPM: 20_000}}},
		Link: sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond},
	}.Open(t)
	var lines []string
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	sent := func(d *link.Datagram) { // the fields that tshark prints
		var p wire.Packet
		must.Do(t, p.Parse(d.Payload))
		lines = append(lines, fmt.Sprintf("%s %s %d %d %d %d", d.Src.Addr(), d.Dst.Addr(), d.Src.Port(), uint8(p.BTH.Opcode), p.BTH.DestQP, p.BTH.PSN))
	}
	a := openOn(t, w, ports[0], providertest.Tap{PacketLink: c.Wrap("a", ports[0]), Sent: sent}, Config{Name: "a"})
	b := openOn(t, w, ports[1], ports[1], Config{Name: "b"})
	providertest.Echo{Client: a, Server: b, To: addrs[1], Messages: 20}.InWorld(t, w)
	must.Do(t, w.RunPrograms())
	must.Do(t, c.Close())
	return lines
}

func TestSameSeedGivesSameCapture(t *testing.T) {
	const recorded = "2ed1b385eea319151a1abc54501a7ba4d0cf9e57c2c30faaa108cda396dc95af"
	providertest.ExpectSameCapture(t, recorded, func(seed uint64, file *bytes.Buffer) { captureEcho(t, seed, true, file) })
}

func TestTsharkDecodesCaptures(t *testing.T) {
	for ip, v6 := range map[string]bool{"ip": false, "ipv6": true} {
		var file bytes.Buffer
		lines := captureEcho(t, 3, v6, &file)
		// Only packets that our side sent: the tap has seen no others.
		got := providertest.Tshark(t, file.Bytes(), "-Y", fmt.Sprintf("%s.src == %s", ip, strings.Fields(lines[0])[0]),
			"-T", "fields", "-E", "separator= ", "-e", ip+".src", "-e", ip+".dst", "-e", "udp.srcport",
			"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn")
		for i := range got {
			got[i] = decimal(t, got[i])
		}
		if !slices.Equal(got, lines) || len(lines) < 40 {
			t.Errorf("tshark sees\n%s\nwe sent\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}

// decimal writes the numbers that tshark gives in hexadecimal as decimal ones.
func decimal(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	for i, w := range words {
		if strings.HasPrefix(w, "0x") {
			var v uint64
			must.Get(fmt.Sscanf(w, "%v", &v))(t)
			words[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(words, " ")
}
