package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxCopied is the longest payload that is copied to the header buffer instead of sent from
// registered memory. Up to this length the copy is cheaper than another buffer.
const maxCopied = 256

// readable reports whether the memory of sgl is valid for local reads of length octets.
func (s *Stream) readable(sgl []verbs.SGE, length uint32) bool {
	ep := s.ep
	return nic.EachSGE(sgl, 0, int(length), func(e *verbs.SGE, off uint32, _, size int) error {
		_, _, err := ep.Layer.NIC.Mem.Local(e.LKey, ep.PD, e.Addr+uint64(off), uint64(size), 0)
		return err
	}) == nil
}

// gather appends n octets of sgl from offset off on to g. It copies them to g.Header if they are few
// or this process cannot address the memory; otherwise g.Payload refers to the memory. It reports
// false if a region is not valid.
func (s *Stream) gather(g *Segment, sgl []verbs.SGE, off uint32, n int) bool {
	if n == 0 {
		return true
	}
	if n > maxCopied && s.gatherInPlace(g, sgl, off, n) {
		return true
	}
	g.Payload = g.Payload[:0] // gatherInPlace may have failed after some pieces
	at := len(g.Header)
	g.Header = slices.Grow(g.Header, n)[:at+n]
	return s.ep.Layer.NIC.Gather(g.Header[at:], sgl, s.ep.PD, off) == nil
}

// gatherInPlace appends slices of the registered memory to g.Payload, without a copy. It reports
// false if a region is not valid, or this process cannot address its memory.
func (s *Stream) gatherInPlace(g *Segment, sgl []verbs.SGE, off uint32, n int) bool {
	ep := s.ep
	for i := range sgl {
		e := &sgl[i]
		if off >= e.Length {
			off -= e.Length
			continue
		}
		size := min(int(e.Length-off), n)
		mem, at, err := ep.Layer.NIC.Mem.Local(e.LKey, ep.PD, e.Addr+uint64(off), uint64(size), 0)
		if err != nil {
			return false
		}
		piece := sliceInPlace(mem, at, uint64(size))
		if piece == nil {
			return false
		}
		g.Payload = append(g.Payload, piece)
		off = 0
		if n -= size; n == 0 {
			return true
		}
	}
	return false
}

// sliceInPlace returns n octets of mem without a copy, or nil if mem is not addressable.
func sliceInPlace(mem nic.Memory, off, n uint64) []byte {
	if m, ok := mem.(nic.Slicer); ok {
		return m.Slice(off, n)
	}
	return nil
}
