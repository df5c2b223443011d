package ib

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

// TestCaptures takes every packet of the recordings apart and puts it together again,
// as it came and with everything computed afresh.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.pcap"))
	if err != nil || len(files) < 10 {
		t.Fatalf("captures: %v, %v", files, err)
	}
	total := map[Opcode]int{}
	for _, file := range files {
		for i, c := range capture(t, file) {
			b, ok := c.IP()
			if !ok {
				continue // ARP
			}
			p, err := Parse(b)
			if errors.Is(err, ErrNotRoCE) {
				continue // the side channel of the tools
			}
			probing := strings.Contains(file, "probe_") && fromProber(p)
			if err != nil {
				if !probing {
					t.Errorf("%s: packet %d: %v", file, i+1, err)
				}
				continue
			}
			total[p.Opcode()]++
			ip := b[:len(b)-len(p.Trailer)]
			if got := p.Build(); !bytes.Equal(got, b) {
				t.Errorf("%s: packet %d (%v): built\n%x, want\n%x", file, i+1, p, got, b)
			}
			if probing {
				continue // broken on purpose, some of them
			}
			fresh := p.WithoutComputed()
			fresh.Trailer = nil
			if got := fresh.Build(); !bytes.Equal(got, ip) {
				t.Errorf("%s: packet %d (%v): built afresh\n%x, want\n%x", file, i+1, p, got, ip)
			}
			for _, f := range p.Faults(0) {
				if f.Rule != FaultUnreliable && f.Rule != FaultFetchAdd { // as testdata/README.md says
					t.Errorf("%s: packet %d (%v): %v", file, i+1, p, f)
				}
			}
		}
	}
	for _, op := range []Opcode{
		OpSendOnly, OpWriteFirst, OpWriteMiddle, OpWriteLast, OpReadRequest, OpReadResponseFirst, OpReadResponseMiddle,
		OpReadResponseLast, OpReadResponseOnly, OpAcknowledge, OpAtomicAcknowledge, OpFetchAdd, OpCompareSwap, OpAtomicWrite,
		UC.Op(OpSendFirst), UC.Op(OpSendMiddle), UC.Op(OpSendLast), OpUDSendOnly, OpUDSendOnlyImm, OpCNP,
	} {
		if total[op] == 0 {
			t.Errorf("no %v in the captures: is the set complete?", op)
		}
	}
}

func fromProber(p Packet) bool {
	return p.IP.Src == netip.MustParseAddr("10.77.0.1") || p.IP.Src == netip.MustParseAddr("fd77::1")
}
