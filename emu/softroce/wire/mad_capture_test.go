package wire

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// readMADs returns the 256 bytes of every MAD to QP 1 in a capture.
func readMADs(t *testing.T, file string) [][]byte {
	t.Helper()
	var mads [][]byte
	for _, p := range testutil.ReadCaptureFile(t, filepath.Join("testdata", file)) {
		frame := p.Data
		if len(frame) < 14+20+8+12+8+MADLen || frame[12] != 0x08 || frame[13] != 0 {
			continue
		}
		const bth = 14 + 20 + 8
		udp := frame[14+20:]
		if binary.BigEndian.Uint16(udp[2:]) != 4791 || frame[bth] != 0x64 || binary.BigEndian.Uint32(frame[bth+4:]) != 1 {
			continue // not a UD SEND_ONLY to QP 1
		}
		mads = append(mads, frame[bth+12+8:bth+12+8+MADLen])
	}
	return mads
}

func TestCapturedMADsRoundTrip(t *testing.T) {
	for file, want := range map[string]int{"rxe_cm_rping.pcap": 5, "rxe_cm_udaddy.pcap": 2, "rxe612_cm.pcap": 18} {
		mads := readMADs(t, file)
		if len(mads) != want {
			t.Fatalf("%s: %d MADs, want %d", file, len(mads), want)
		}
		for i, b := range mads {
			var h MADHeader
			rest := must.Get(h.Parse(b))(t)
			if _, ok := h.Attr.Index(); !ok || h != NewMADHeader(h.Attr, h.TID) {
				t.Fatalf("%s: MAD %d: header %+v", file, i, h)
			}
			m := kindOf(h.Attr).new()
			must.Get(m.Parse(rest))(t)
			if got := m.Append(h.Append(nil)); !bytes.Equal(got, b) {
				t.Errorf("%s: MAD %d, a %v, encodes to\n %x, captured\n %x", file, i, h.Attr, got, b)
			}
		}
	}
}
