package softiwarp

import (
	"bytes"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
)

// captureOperations runs every operation between two devices and captures one side. It returns the
// bytes that this side sent and received.
func captureOperations(t *testing.T, seed uint64, v6 bool, cfg mpa.Config, file *bytes.Buffer) (sent, got []byte) {
	t.Helper()
	addrs := [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}
	if v6 {
		addrs = [2]netip.Addr{addrA, addrB}
	}
	w, ports := providertest.Cable{
		Seed: seed, Net: impaired, Addrs: addrs, Link: sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond},
	}.Open(t)
	pa, pb := ports[0], ports[1]
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	a := must.Get(InWorld(w, pa, recorder{c.WrapStreams("a", pa.StreamHost()), &sent, &got}, Config{Name: "a", NIC: engine.Config{MPA: cfg}}))(t)
	b := must.Get(InWorld(w, pb, pb.StreamHost(), Config{Name: "b", NIC: engine.Config{MPA: cfg}}))(t)
	w.Go("both", func(p *sim.Proc) error {
		x := newConnectedPair(t, p, a, b)
		for _, op := range operations {
			op.do(x)
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
	must.Do(t, w.Run())
	must.Do(t, c.Close())
	return sent, got
}

func TestSameSeedGivesSameCapture(t *testing.T) {
	const recorded = "05da5c5e0133d3cabc75dfe2a19d80b319d646b5bcc2d2ea5205046fc7e28520"
	providertest.ExpectSameCapture(t, recorded, func(seed uint64, file *bytes.Buffer) {
		captureOperations(t, seed, true, mpa.Config{}, file)
	})
}

// tshark returns the lines that tshark prints. It would decode sends as RPC over RDMA by default.
func tshark(t *testing.T, file []byte, args ...string) []string {
	t.Helper()
	return providertest.Tshark(t, file, append([]string{"--disable-protocol", "rpcordma"}, args...)...)
}

// fpdus lists the FPDUs of one direction in the format of tshark: opcode, length, CRC in wire
// order.
func fpdus(t *testing.T, stream []byte, framing wire.Framing) (lines []string) {
	t.Helper()
	var start wire.StartFrame
	rest := must.Get(start.Parse(stream))(t)
	d := wire.NewDeframer(framing)
	for {
		f, more, ok := d.Next(rest)
		if !ok {
			return lines
		}
		var h wire.Header
		if _, err := h.Parse(f.ULPDU); err != nil || f.CRCStatus == wire.CRCBad {
			t.Fatalf("FPDU %d: CRC %v, %v", len(lines), f.CRCStatus, err)
		}
		lines = append(lines, fmt.Sprintf("0x%02x %d 0x%08x", uint8(h.Control.Opcode), f.Length, bits.ReverseBytes32(f.CRC)))
		rest = more
	}
}

func TestTsharkDecodesCaptures(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		var file bytes.Buffer
		sent, got := captureOperations(t, 3, v6, mpa.Config{}, &file)
		want := map[string][]string{"9": fpdus(t, sent, wire.Framing{CRC: true}), "49152": fpdus(t, got, wire.Framing{CRC: true})}
		seen := map[string][]string{}
		for _, line := range tshark(t, file.Bytes(), "-T", "fields", "-e", "tcp.dstport", "-e", "iwarp_rdma.opcode",
			"-e", "iwarp_mpa.ulpdulength", "-e", "iwarp_mpa.crc_check", "-e", "_ws.malformed", "-e", "tcp.analysis.flags") {
			f := strings.Split(line, "\t")
			if f[4] != "" || f[5] != "" {
				t.Errorf("tshark reports %q", line)
			}
			if f[3] == "" {
				continue // a start-up frame or no FPDU
			}
			ops, lengths, crcs := strings.Split(f[1], ","), strings.Split(f[2], ","), strings.Split(f[3], ",")
			for i := range ops { // several FPDUs may share a segment
				seen[f[0]] = append(seen[f[0]], fmt.Sprintf("%s %s %s", ops[i], lengths[i], crcs[i]))
			}
		}
		total := 0
		for port := range want {
			if total += len(want[port]); !slices.Equal(want[port], seen[port]) {
				t.Errorf("to port %s tshark decodes\n%s\nwant\n%s", port, strings.Join(seen[port], "\n"), strings.Join(want[port], "\n"))
			}
		}
		good := 0
		for _, line := range tshark(t, file.Bytes(), "-O", "iwarp_mpa", "-V") {
			if strings.Contains(line, "(Good CRC32)") {
				good++
			}
		}
		if good != total || total < 100 {
			t.Errorf("%d of %d FPDUs have a CRC that tshark calls good", good, total)
		}
	}
}
