package iwarp

import (
	"bytes"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// pageRegion is a region in the middle of a page: a device that protects whole pages does not
// detect accesses right before and after it.
type pageRegion struct {
	verbs.MR
	// buf has the region at off, with pageRegionLen octets; before is its initial content.
	buf, before []byte
	off         int
}

const (
	pageLen       = 4096
	pageRegionLen = 1024
	pageMargin    = 256
)

// newPageRegion registers a region in the middle of a page, with all access rights.
func (h *host) newPageRegion() *pageRegion {
	p := &pageRegion{buf: rig.Pattern(3*pageLen, byte(h.Rand.Uint32()))}
	p.before = bytes.Clone(p.buf)
	for p.off = pageMargin; p.off < pageMargin+pageLen; p.off += pageMargin {
		if p.register(h, 0); p.hasMargins() {
			return p
		}
		h.Must("a region that can be deregistered", p.Close())
	}
	// The addresses of the device do not depend on the buffer: choose one.
	const anyPage = 0x5000_0000_0000
	p.register(h, anyPage+pageLen/2)
	return p
}

func (p *pageRegion) register(h *host, addr uint64) {
	var err error
	p.MR, err = h.PD.RegMR(verbs.MRInit{Buf: p.buf[p.off:][:pageRegionLen:pageRegionLen], Addr: addr, Access: allAccess})
	h.Must("a memory region", err)
}

// hasMargins reports whether the page has pageMargin octets before and after the region.
func (p *pageRegion) hasMargins() bool {
	at := p.Addr() % pageLen
	return at >= pageMargin && at+pageRegionLen+pageMargin <= pageLen
}

// remoteAddr returns the address at off, in the region or outside.
func (p *pageRegion) remoteAddr(off int) iwarp.Addr {
	return iwarp.At(uint32(p.RKey()), p.Addr()+uint64(int64(off)))
}

// bytesAt returns n octets at off, in the region or outside.
func (p *pageRegion) bytesAt(off, n int) []byte { return p.buf[p.off+off:][:n] }

// expectPageUnchanged fails the case if any octet of the region or around it has changed.
func (h *host) expectPageUnchanged(p *pageRegion) {
	for i := range p.buf {
		h.Check(p.buf[i] == p.before[i], "memory unchanged", "octet %d of a region of %d has changed", i-p.off, pageRegionLen)
	}
}
