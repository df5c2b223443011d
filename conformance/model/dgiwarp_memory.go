package model

import (
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// DGRegion is a registered memory region of a datagram-iWARP device, with the expected content.
type DGRegion struct {
	STag   uint32
	Addr   uint64
	Access verbs.Access
	// Buf is the expected content.
	Buf []byte
	// OtherPD says that the region is in another protection domain than the queue pair.
	OtherPD bool
}

// DGMemory is the set of regions that the peers of a queue pair may name.
type DGMemory []*DGRegion

// Find returns the region of an STag, or nil.
func (m DGMemory) Find(stag uint32) *DGRegion {
	i := slices.IndexFunc(m, func(r *DGRegion) bool { return r.STag == stag })
	if i < 0 {
		return nil
	}
	return m[i]
}

// Check returns the octets that an access names, or the permitted causes of its error. For most
// errors, both DDP and RDMAP have a cause.
func (m DGMemory) Check(at iwarp.Addr, n int, right verbs.Access) ([]byte, []iwarp.Cause) {
	r := m.Find(at.STag)
	switch {
	case n == 0:
		return nil, nil // RFC 5040: an access of no octets needs no valid STag
	case r == nil:
		return nil, []iwarp.Cause{iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag}
	case r.OtherPD:
		return nil, []iwarp.Cause{
			iwarp.DDPTaggedSTagNotAssociated, iwarp.RDMAPSTagNotAssociated, iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPInvalidSTag,
		}
	case r.Access&right != right:
		return nil, []iwarp.Cause{iwarp.RDMAPAccess, iwarp.DDPTaggedInvalidSTag}
	case at.TO+uint64(n) < at.TO:
		return nil, []iwarp.Cause{iwarp.DDPTaggedTOWrap, iwarp.RDMAPTOWrap, iwarp.DDPTaggedBounds, iwarp.RDMAPBounds}
	case at.TO < r.Addr || at.TO+uint64(n) > r.Addr+uint64(len(r.Buf)):
		return nil, []iwarp.Cause{iwarp.DDPTaggedBounds, iwarp.RDMAPBounds}
	}
	return r.Buf[at.TO-r.Addr:][:n], nil
}

// DGReceive is a posted receive. Parts is its scatter list, in the expected content of memory.
type DGReceive struct {
	ID    uint64
	Parts [][]byte
}

// Len returns the number of octets of the receive.
func (r DGReceive) Len() (n int) {
	for _, p := range r.Parts {
		n += len(p)
	}
	return n
}

// place writes octets to the receive's memory, from off on.
func (r DGReceive) place(off int, b []byte) {
	for _, p := range r.Parts {
		if off >= len(p) {
			off -= len(p)
			continue
		}
		n := copy(p[off:], b)
		b, off = b[n:], 0
	}
}

// octets returns a copy of the first n octets.
func (r DGReceive) octets(n int) (b []byte) {
	for _, p := range r.Parts {
		b = append(b, p[:min(len(p), n-len(b))]...)
	}
	return b
}

// DGRange is a range of a message's octets: from From up to, without, To.
type DGRange struct{ From, To int }

// dgRanges are disjoint ranges in order, none of which touches another.
type dgRanges []DGRange

// add returns the ranges with r, which it merges with those that r overlaps or touches.
func (all dgRanges) add(r DGRange) dgRanges {
	var merged dgRanges
	for _, old := range all {
		if old.To < r.From || old.From > r.To {
			merged = append(merged, old)
			continue
		}
		r = DGRange{min(r.From, old.From), max(r.To, old.To)}
	}
	merged = append(merged, r)
	slices.SortFunc(merged, func(a, b DGRange) int { return a.From - b.From })
	return merged
}

// whole reports whether the ranges are the one from 0 to n.
func (all dgRanges) whole(n int) bool { return n == 0 || len(all) == 1 && all[0] == DGRange{0, n} }

// Limits of datagram-iWARP (docs/spec/datagram-iwarp.md, section 9).
const (
	DGMaxSend         = 65536
	DGMaxAssemblies   = 64
	DGAssemblyTimeout = 100 * time.Millisecond
	DGMaxRecords      = 64
	DGMaxRanges       = 64
	DGRecordTimeout   = 10 * time.Millisecond
	dgRecordLen       = 20 // without ranges
	dgRangeLen        = 8
)
