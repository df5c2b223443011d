package pcaplink

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// kernelPackets returns the IP packets of a capture of two rxe peers, and their datagrams.
func kernelPackets(t *testing.T) (packets [][]byte, ds []link.Datagram) {
	t.Helper()
	for _, c := range testutil.ReadCaptureFile(t, "testdata/rxe_rc_send_64.pcap") {
		p := gopacket.NewPacket(c.Data, layers.LayerTypeEthernet, gopacket.Default)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if ip == nil || udp == nil || udp.DstPort != 4791 {
			continue
		}
		packets = append(packets, append(bytes.Clone(ip.Contents), ip.Payload...))
		src, _ := netip.AddrFromSlice(ip.SrcIP.To4())
		dst, _ := netip.AddrFromSlice(ip.DstIP.To4())
		ds = append(ds, link.Datagram{
			Src: netip.AddrPortFrom(src, uint16(udp.SrcPort)), Dst: netip.AddrPortFrom(dst, uint16(udp.DstPort)),
			TClass: ip.TOS, HopLimit: ip.TTL, IPID: uint32(ip.Id), Variants: link.NoChecksum, Payload: bytes.Clone(udp.Payload),
		})
	}
	return packets, ds
}

func TestFramesMatchThoseOfKernel(t *testing.T) {
	packets, ds := kernelPackets(t)
	if len(ds) < 10 {
		t.Fatalf("only %d packets in the capture", len(ds))
	}
	for i := range ds {
		if got := RawIP.appendFrame(nil, &ds[i]); !bytes.Equal(got, packets[i]) {
			t.Errorf("packet %d: got\n%s\nthe kernel sent\n%s", i, hex.Dump(got), hex.Dump(packets[i]))
		}
	}
}

func TestTsharkDecodesRoCE(t *testing.T) {
	_, ds := kernelPackets(t)
	ds = ds[:4]
	want := func(version string) string {
		good := "1" // header checksum
		if version == "6" {
			good = ""
		}
		var b strings.Builder
		for i, x := range []string{"4 10641843 2 nic-a", "17 10641843 1 nic-a", "4 15542220 2 nic-a", "17 15542220 1 nic-a"} {
			fmt.Fprintf(&b, "0.%09d %s 0x11 0xffff %s\n", 1+i, x, good)
		}
		return normalize(b.String())
	}
	for _, framing := range []Framing{RawIP, Ethernet} {
		for _, version := range []string{"4", "6"} {
			t.Run(fmt.Sprintf("framing %d, IPv%s", framing, version), func(t *testing.T) {
				var file bytes.Buffer
				c := NewCapture(&file, Options{Framing: framing})
				intf := c.AddInterface("nic-a")
				for i, d := range ds {
					if version == "6" {
						d.Src = netip.MustParseAddrPort("[fd00::1]:49441")
						d.Dst = netip.MustParseAddrPort("[fd00::2]:4791")
					}
					intf.Write(mono.Time(i+1), Direction(i%2), &d)
				}
				must.Do(t, c.Close())
				if got := decode(t, file.Bytes()); got != want(version) {
					t.Errorf("tshark decodes\n%s\nwant\n%s", got, want(version))
				}
			})
		}
	}
}

// decode returns fields of the packets of a capture, normalized.
func decode(t *testing.T, file []byte) string {
	t.Helper()
	args := []string{"-T", "fields", "-E", "separator=/s"}
	for _, field := range []string{
		"frame.time_epoch", "infiniband.bth.opcode", "infiniband.bth.psn", "frame.packet_flags_direction",
		"frame.interface_name", "infiniband.bth.destqp", "infiniband.bth.p_key", "ip.checksum.status",
	} {
		args = append(args, "-e", field)
	}
	return normalize(tshark(t, file, args...))
}

// normalize unifies the base of numbers and the status of checksums, which depend on the version.
func normalize(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if f == "Good" {
				fields[i] = "1"
			} else if n, err := strconv.ParseUint(f, 0, 64); err == nil {
				fields[i] = strconv.FormatUint(n, 10)
			}
		}
		b.WriteString(strings.Join(fields, " ") + "\n")
	}
	return b.String()
}

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
		t.Error("a wrapped port is not a GroupLink")
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
		t.Error("two runs with seed 1 differ")
	}
	if bytes.Equal(file, simulate(t, 2)) {
		t.Error("seeds 1 and 2 give the same file")
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
		case "b": // 100 bytes at 1 byte/ns, and the latency
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

// tshark returns the output of tshark for a capture, with checksums verified.
func tshark(t *testing.T, file []byte, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed: captures are only checked with gopacket's decoder")
	}
	name := filepath.Join(t.TempDir(), "f.pcapng")
	must.Do(t, os.WriteFile(name, file, 0o600))
	cmd := exec.Command(program, append([]string{"-r", name, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.Bytes())
	}
	return string(out)
}

// followed returns the bytes of both directions of the first stream, reassembled by tshark.
func followed(t *testing.T, file []byte) (up, down []byte) {
	t.Helper()
	for line := range strings.Lines(tshark(t, file, "-q", "-z", "follow,tcp,raw,0")) {
		to := &up
		if strings.HasPrefix(line, "\t") { // of the second node
			to = &down
		}
		if b, err := hex.DecodeString(strings.TrimSpace(line)); err == nil {
			*to = append(*to, b...)
		}
	}
	return up, down
}

func TestTsharkReassemblesStreams(t *testing.T) {
	for _, tc := range []struct {
		tap, v6 bool
		framing Framing
	}{{false, false, RawIP}, {false, true, Ethernet}, {true, false, Ethernet}, {true, true, RawIP}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			file := captured(t, 5, tc.v6, tc.tap, Options{Framing: tc.framing}, sim.StreamConfig{CutPPM: 300_000})
			up, down := followed(t, file)
			if !bytes.Equal(up, text(20_000)) || !bytes.Equal(down, text(30_000)[7:]) {
				t.Errorf("tshark reassembles %d and %d bytes, or wrong ones", len(up), len(down))
			}
			// Checksum status 1 is good. tshark flags gaps, retransmissions and ACKs of bytes that
			// were not sent.
			bad := tshark(t, file, "-Y", "tcp.checksum.status != 1 || ip.checksum.status != 1 || tcp.analysis.flags", "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info")
			if bad != "" {
				t.Errorf("tshark reports\n%s", bad)
			}
		})
	}
}
