package dgiwarp

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// witness records the packets that a link sends, with the fields that tshark prints.
type witness struct {
	link.PacketLink
	lines *[]string
}

func (w witness) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := w.PacketLink.Send(now, ds)
	for i := range n {
		*w.lines = append(*w.lines, fmt.Sprintf("%s %s %d %d %x %d",
			ds[i].Src.Addr(), ds[i].Dst.Addr(), ds[i].Src.Port(), ds[i].Dst.Port(), ds[i].Payload, link.UDPHeaderLen+len(ds[i].Payload)))
	}
	return n, err
}

// captureEcho runs the echo programs on a lossy cable and captures one side.
func captureEcho(t *testing.T, seed uint64, addrs [2]netip.Addr, file *bytes.Buffer) (lines []string) {
	t.Helper()
	w := sim.New(sim.Config{Seed: seed, MaxTime: maxWorldTime})
	port := func(i int) sim.PortConfig {
		return sim.PortConfig{
			Addrs: addrs[i : i+1], Up: impair.Config{Specs: []impair.Spec{{LossPPM: 20_000}}},
			Link: sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond},
		}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, port(0), port(1))
	if err != nil {
		t.Fatal(err)
	}
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	a, err := InWorld(w, pa, witness{c.Wrap("a", pa), &lines}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	client, server := mustEnd(t, a, reliable), mustEnd(t, b, reliable)
	w.Go("server", func(*sim.Proc) error { return echoServer(server, 20, func() {}) })
	w.Go("client", func(*sim.Proc) error { return echoClient(client, server.where(), 20) })
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestSameSeedGivesSameCapture(t *testing.T) {
	capture := func(seed uint64, procs int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		var file bytes.Buffer
		captureEcho(t, seed, [2]netip.Addr{addrA, addrB}, &file)
		return file.Bytes()
	}
	one := capture(3, 1)
	if !bytes.Equal(one, capture(3, 1)) || !bytes.Equal(one, capture(3, 4)) {
		t.Error("the same seed gave different packets")
	}
	if bytes.Equal(one, capture(4, 1)) {
		t.Error("another seed gave the same packets: does chance play any part?")
	}
}

// tshark does not know the protocol: it sees that the packets are proper UDP.
func TestTsharkDecodesCaptures(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed (Debian: apt-get install tshark)")
	}
	for ip, addrs := range map[string][2]netip.Addr{
		"ip":   {netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")},
		"ipv6": {addrA, addrB},
	} {
		var file bytes.Buffer
		lines := captureEcho(t, 3, addrs, &file)
		name := filepath.Join(t.TempDir(), "echo.pcapng")
		if err := os.WriteFile(name, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		// Only packets that our side sent: the witness has seen no others. Captures of
		// simulated links have no checksums.
		out, err := exec.Command(tshark, "-r", name, "-Y", fmt.Sprintf("%s.src == %v", ip, addrs[0]),
			"-T", "fields", "-E", "separator= ", "-e", ip+".src", "-e", ip+".dst", "-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.payload",
			"-e", "udp.length").Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(got) != len(lines) || len(lines) < 20 {
			t.Fatalf("tshark sees %d packets, %d were sent", len(got), len(lines))
		}
		for i, line := range lines {
			if got[i] != line {
				t.Fatalf("packet %d: tshark says %q, we sent %q", i+1, got[i], line)
			}
		}
	}
}
