package pcaplink

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// kernelPackets returns the IP packets of a capture of two soft-RoCE peers, and
// the datagrams in them.
func kernelPackets(t *testing.T) (packets [][]byte, ds []link.Datagram) {
	t.Helper()
	f := must.Get(os.Open("testdata/rxe_rc_send_64.pcap"))(t)
	defer f.Close()
	r := must.Get(pcapgo.NewReader(f))(t)
	for {
		data, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return packets, ds
		}
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
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
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed: the file is only checked with gopacket's reader")
	}
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
				if got := decode(t, tshark, file.Bytes()); got != want(version) {
					t.Errorf("tshark says\n%s\nwant\n%s", got, want(version))
				}
			})
		}
	}
}

func decode(t *testing.T, tshark string, file []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f.pcapng")
	must.Do(t, os.WriteFile(name, file, 0o600))
	args := []string{"-r", name, "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=/s"}
	for _, field := range []string{
		"frame.time_epoch", "infiniband.bth.opcode", "infiniband.bth.psn", "frame.packet_flags_direction",
		"frame.interface_name", "infiniband.bth.destqp", "infiniband.bth.p_key", "ip.checksum.status",
	} {
		args = append(args, "-e", field)
	}
	cmd := exec.Command(tshark, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, stderr.Bytes())
	}
	return normalize(string(out))
}

// normalize formats values alike: versions of tshark differ in the base of numbers and in
// the status of checksums.
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
