package softroce

import (
	"bytes"
	"crypto/sha256"
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
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// witness records the packets that a link sends, with the fields that tshark prints.
type witness struct {
	link.PacketLink
	lines *[]string
}

func (w witness) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := w.PacketLink.Send(now, ds)
	for i := range n {
		var p wire.Packet
		if err := p.Parse(ds[i].Payload); err != nil {
			return n, err
		}
		*w.lines = append(*w.lines, fmt.Sprintf("%s %s %d %d %d %d",
			ds[i].Src.Addr(), ds[i].Dst.Addr(), ds[i].Src.Port(), uint8(p.BTH.Opcode), p.BTH.DestQP, p.BTH.PSN))
	}
	return n, err
}

// captureEcho runs the echo programs on a lossy cable and captures one side.
func captureEcho(t *testing.T, seed uint64, v6 bool, file *bytes.Buffer) []string {
	t.Helper()
	addrs := [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}
	if v6 {
		addrs = [2]netip.Addr{addrA, addrB}
	}
	w := sim.New(sim.Config{Seed: seed})
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
	var lines []string
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	a, err := InWorld(w, pa, witness{c.Wrap("a", pa), &lines}, Config{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb, Config{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	w.Go("server", func(*sim.Proc) error { return echoServer(b, 20, func() {}) })
	w.Go("client", func(*sim.Proc) error { return echoClient(a, addrs[1], 20) })
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
		captureEcho(t, seed, true, &file)
		return file.Bytes()
	}
	one := capture(3, 1)
	if !bytes.Equal(one, capture(3, 1)) || !bytes.Equal(one, capture(3, 4)) {
		t.Error("the same seed gave different packets")
	}
	if bytes.Equal(one, capture(4, 1)) {
		t.Error("another seed gave the same packets: does chance play any part?")
	}
	// Recorded once, on amd64: other machines and later versions must agree, or
	// say in the change log that runs of the same seed differ from now on.
	const recorded = "2ed1b385eea319151a1abc54501a7ba4d0cf9e57c2c30faaa108cda396dc95af"
	if sum := fmt.Sprintf("%x", sha256.Sum256(one)); sum != recorded {
		t.Errorf("capture of seed 3 has changed: SHA-256 %s, was %s", sum, recorded)
	}
}

func TestTsharkDecodesCaptures(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed (Debian: apt-get install tshark)")
	}
	for _, v6 := range []bool{false, true} {
		var file bytes.Buffer
		lines := captureEcho(t, 3, v6, &file)
		name := filepath.Join(t.TempDir(), "echo.pcapng")
		if err := os.WriteFile(name, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		ip := "ip"
		if v6 {
			ip = "ipv6"
		}
		// Only packets that our side sent: the witness has seen no others.
		out, err := exec.Command(tshark, "-r", name, "-Y", fmt.Sprintf("%s.src == %s", ip, strings.Fields(lines[0])[0]),
			"-T", "fields", "-E", "separator= ", "-e", ip+".src", "-e", ip+".dst", "-e", "udp.srcport",
			"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn").Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(string(out)), "\n")
		for i := range got {
			got[i] = decimal(t, got[i])
		}
		if len(got) != len(lines) || len(lines) < 40 {
			t.Fatalf("tshark sees %d packets, %d were sent", len(got), len(lines))
		}
		for i := range got {
			if got[i] != lines[i] {
				t.Fatalf("packet %d: tshark says %q, we sent %q", i+1, got[i], lines[i])
			}
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
			if _, err := fmt.Sscanf(w, "%v", &v); err != nil {
				t.Fatal(err)
			}
			words[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(words, " ")
}
