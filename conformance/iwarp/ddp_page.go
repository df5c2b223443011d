package iwarp

import (
	"bytes"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// pageRegion is a region in the middle of a page of memory: a device that protects
// whole pages gives away what is on both sides of it.
type pageRegion struct {
	verbs.MR
	// all is the memory, of which the region is pageRegionLen octets from off on.
	all, was []byte
	off      int
}

const (
	pageLen       = 4096
	pageRegionLen = 1024
	pageMargin    = 256
)

// inPage registers a region in the middle of a page, open for everything.
func (h *host) inPage() *pageRegion {
	p := &pageRegion{all: rig.Pattern(3*pageLen, byte(h.Rand.Uint32()))}
	p.was = bytes.Clone(p.all)
	for p.off = pageMargin; p.off < pageMargin+pageLen; p.off += pageMargin {
		if p.register(h, 0); p.amid() {
			return p
		}
		h.Must("a region that can be closed", p.Close())
	}
	// The device chooses addresses that do not depend on where memory is.
	const anyPage = 0x5000_0000_0000
	p.register(h, anyPage+pageLen/2)
	return p
}

func (p *pageRegion) register(h *host, addr uint64) {
	var err error
	p.MR, err = h.PD.RegMR(verbs.MRInit{Buf: p.all[p.off:][:pageRegionLen:pageRegionLen], Addr: addr, Access: allAccess})
	h.Must("a memory region", err)
}

// amid reports whether there is enough of the page on both sides.
func (p *pageRegion) amid() bool {
	at := p.Addr() % pageLen
	return at >= pageMargin && at+pageRegionLen+pageMargin <= pageLen
}

// at is a place in the region, or outside of it.
func (p *pageRegion) at(off int) iwarp.Addr {
	return iwarp.At(uint32(p.RKey()), p.Addr()+uint64(int64(off)))
}

// octets are n octets from off on, in the region or outside of it.
func (p *pageRegion) octets(off, n int) []byte { return p.all[p.off+off:][:n] }

// leftAlone ends the case if any octet of the region or around it has changed.
func (h *host) leftAlone(p *pageRegion) {
	for i := range p.all {
		h.Check(p.all[i] == p.was[i], "memory that is left alone", "octet %d of a region of %d has changed", i-p.off, pageRegionLen)
	}
}
