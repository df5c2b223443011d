package iwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// piece is the new data of a TCP segment of a capture.
type piece struct {
	side int // 0 is the side that sent first
	data []byte
}

// connection is a TCP connection of a capture.
type connection struct {
	first  netip.AddrPort
	next   map[netip.AddrPort]uint32 // next sequence number by sender
	pieces []piece
}

// connections returns the TCP connections of a capture in the order of their first packets.
func connections(t *testing.T, path string) []*connection {
	t.Helper()
	var all []*connection
	known := map[[2]netip.AddrPort]*connection{}
	for i, p := range testutil.ReadCaptureFile(t, path) {
		b, ok := p.IP()
		if !ok {
			continue
		}
		ip, tcp, _, err := packet.ParseIP(b)
		if err != nil || len(tcp) < 20 {
			t.Fatalf("%s: packet %d: %v", path, i+1, err)
		}
		from := netip.AddrPortFrom(ip.Src, binary.BigEndian.Uint16(tcp))
		to := netip.AddrPortFrom(ip.Dst, binary.BigEndian.Uint16(tcp[2:]))
		c := known[[2]netip.AddrPort{from, to}]
		if c == nil {
			c = &connection{first: from, next: map[netip.AddrPort]uint32{}}
			known[[2]netip.AddrPort{from, to}], known[[2]netip.AddrPort{to, from}] = c, c
			all = append(all, c)
		}
		if !c.add(from, tcp) {
			t.Fatalf("%s: packet %d: octets before it are missing", path, i+1)
		}
	}
	return all
}

// add adds the new data of a TCP segment. It returns false if earlier octets are missing.
func (c *connection) add(from netip.AddrPort, tcp []byte) bool {
	const syn = 0x02
	seq, data := binary.BigEndian.Uint32(tcp[4:]), tcp[4*(tcp[12]>>4):]
	if tcp[13]&syn != 0 {
		c.next[from] = seq + 1
		return true
	}
	old := int32(c.next[from] - seq)
	switch {
	case len(data) == 0:
		return true
	case old < 0:
		return false
	case int(old) < len(data):
		side := 1
		if from == c.first {
			side = 0
		}
		c.pieces = append(c.pieces, piece{side, data[old:]})
		c.next[from] = seq + uint32(len(data))
	}
	return true
}

func captures(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.pcap")
	if err != nil || len(paths) != 8 {
		t.Fatalf("%d captures, want 8 (%v)", len(paths), err)
	}
	return paths
}

// contents are the contents of the captures; tshark counts the same FPDUs.
var contents = map[string]struct{ connections, fpdus, dirty int }{
	"rping_100.pcap":  {1, 21, 0},
	"send_2500.pcap":  {2, 34, 2},
	"read_2500.pcap":  {2, 47, 2},
	"write_2500.pcap": {2, 42, 2},
}

// Parsing the streams of siw and appending the parsed frames gives the same octets.
func TestCapturedStreamsRoundTrip(t *testing.T) {
	for _, path := range captures(t) {
		all := connections(t, path)
		want := contents[strings.TrimPrefix(strings.TrimPrefix(filepath.Base(path), "siwcrc_"), "siw_")]
		fpdus, dirty := 0, 0
		for _, c := range all {
			n, pads := rebuild(t, path, c)
			fpdus, dirty = fpdus+n, dirty+pads
		}
		if len(all) != want.connections || fpdus != want.fpdus || dirty != want.dirty {
			t.Errorf("%s: %d connections, %d FPDUs, %d with pad that is not zero; want %d, %d, %d", path,
				len(all), fpdus, dirty, want.connections, want.fpdus, want.dirty)
		}
	}
}

// rebuild parses a connection and appends the parsed frames. The only oddity allowed is pad,
// which siw does not clear. dirty is the number of such frames.
func rebuild(t *testing.T, path string, c *connection) (fpdus, dirty int) {
	t.Helper()
	state := CRCZero
	if strings.Contains(path, "siwcrc") {
		state = CRCCorrect
	}
	var d ConnDeframer
	var sent, built [2][]byte
	framers := [2]Framer{{CRC: state == CRCCorrect}, {CRC: state == CRCCorrect}}
	for _, p := range c.pieces {
		sent[p.side] = append(sent[p.side], p.data...)
		for _, h := range d.Feed(p.side, p.data) {
			if h.Startup != nil {
				built[h.Side] = h.Startup.Append(built[h.Side])
				continue
			}
			frame := h.FPDU.Segment
			if pad := h.FPDU.MPA.Pad; !bytes.Equal(pad, make([]byte, len(pad))) {
				frame = frame.Pad(pad...)
				dirty++
			}
			for _, odd := range oddOf(*h.FPDU) {
				if frame.MPA.Pad == nil || !strings.HasPrefix(odd, "pad ") {
					t.Errorf("%s: %v: %s", path, h, odd)
				}
			}
			if got := *h.FPDU.MPA.CRCStatus; got != state {
				t.Errorf("%s: %v: CRC %v, want %v", path, h, got, state)
			}
			fpdus++
			built[h.Side] = framers[h.Side].Append(built[h.Side], frame)
		}
	}
	for side := range sent {
		if n := len(d.Pending(side)); n != 0 {
			t.Errorf("%s: %d octets of side %d were not parsed", path, n, side)
		}
		if !bytes.Equal(sent[side], built[side]) {
			t.Errorf("%s: side %d: the parsed frames do not give the same %d octets", path, side, len(sent[side]))
		}
	}
	return fpdus, dirty
}

// The first frames of a capture of rping, as text.
func TestFramesOfRpingAsText(t *testing.T) {
	var d ConnDeframer
	var got []string
	for _, p := range connections(t, "testdata/siwcrc_rping_100.pcap")[0].pieces {
		for _, h := range d.Feed(p.side, p.data) {
			got = append(got, fmt.Sprint(h.Side, " ", h))
		}
	}
	want := []string{"0 MPA REQUEST rev 2 C S ird 1 ord 1", "1 MPA REPLY rev 2 C S ird 1 ord 1", "0 SEND msn 1 16 B last", "1 READ REQUEST msn 1 100 B from "}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("line %d: %q, want %q…", i, got[i], w)
		}
	}
}
