package iwarp

import (
	"encoding/binary"
	"errors"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What a layer that is Defects makes of memory.

// PlaceEarly imitates a stack that does not wait for segments: of one that has come
// in part, what is there of a Write is placed. All else waits for Input, as it
// should, and so does every complaint.
func (s *Stream) PlaceEarly(part []byte) {
	var h wire.Header
	body, err := h.Parse(part)
	if err != nil || s.state != open || h.Control.Opcode != wire.OpWrite || !h.Control.Tagged || len(body) == 0 {
		return
	}
	if mem, at, err := s.remote(h.Tagged.STag, h.Tagged.TO, uint64(len(body)), verbs.AccessRemoteWrite); err == nil {
		_ = mem.WriteAt(body, at) // Input will tell
	}
}

// PlaceUnchecked imitates a stack that checks a segment when it has placed it: one
// that is wrong has reached the memory of its Write, its read or its receive. The
// stream must be failed behind it.
func (s *Stream) PlaceUnchecked(segment []byte) {
	a := arrival{raw: segment}
	var err error
	if a.body, err = a.hdr.Parse(segment); err != nil || s.state != open || !a.hdr.Control.Consistent() {
		return
	}
	mem := s.ep.Layer.NIC
	switch info, _ := a.hdr.Control.Opcode.Info(); {
	case a.hdr.Control.Opcode == wire.OpReadResponse && s.reading != nil && s.reading.Op == verbs.OpRDMARead:
		if off, _, ok := s.sinkOffset(s.reading, &a); ok && uint32(len(a.body)) <= s.reading.Length-off {
			_ = mem.Scatter(s.reading.SGL, s.ep.PD, off, a.body) // it fails in any case
		}
	case info.Class.Has(wire.HasPayload|wire.ConsumesRecv) && a.hdr.Untagged.MO == s.filled:
		if s.recv == nil {
			s.recv = s.owner.NextReceive()
		}
		if s.recv != nil && uint32(len(a.body)) <= s.recv.Length-s.filled {
			_ = mem.Scatter(s.recv.SGL, s.recv.PD, s.filled, a.body)
		}
	default:
		s.PlaceEarly(segment)
	}
}

// writeRight is what a Write needs.
func (s *Stream) writeRight() verbs.Access {
	if defects := s.defects(); defects.WriteRightsUnchecked || defects.SecondSegmentRights && s.writing {
		return 0
	}
	return verbs.AccessRemoteWrite
}

// remoteWrongly looks once more for memory that was refused.
func (s *Stream) remoteWrongly(stag wire.STag, to, n uint64, need verbs.Access, err error) (nic.Memory, uint64, error) {
	ep := s.ep
	if s.defects().KeyOctetIgnored && errors.Is(err, nic.ErrKey) {
		for octet := range uint32(256) {
			key := uint32(stag)&^255 | octet
			if mem, at, e := ep.Layer.NIC.Mem.Remote(key, ep.PD, ep.QPN, to, n, need); !errors.Is(e, nic.ErrKey) {
				return mem, at, e
			}
		}
	}
	if s.defects().PageBounds && errors.Is(err, nic.ErrBounds) {
		addr, size := ep.Layer.NIC.Mem.Span(uint32(stag))
		low, high := addr&^(pageLen-1), (addr+size+pageLen-1)&^(pageLen-1)
		mem, _, e := ep.Layer.NIC.Mem.Remote(uint32(stag), ep.PD, ep.QPN, addr, size, need)
		if e == nil && to >= low && to < high && n <= high-to {
			return paged{mem, addr - low}, to - low, nil
		}
	}
	return nil, 0, err
}

// placeFitting places what fits of a Write that runs over the end of its memory.
func (s *Stream) placeFitting(t *wire.Tagged, body []byte) {
	addr, size := s.ep.Layer.NIC.Mem.Span(uint32(t.STag))
	if t.TO < addr || t.TO-addr >= size {
		return
	}
	fits := min(size-(t.TO-addr), uint64(len(body)))
	if mem, at, err := s.remote(t.STag, t.TO, fits, s.writeRight()); err == nil {
		_ = mem.WriteAt(body[:fits], at) // the segment is refused in any case
	}
}

// knows reports whether a key is one of ours.
func (s *Stream) knows(stag wire.STag) bool {
	_, _, err := s.ep.Layer.NIC.Mem.Local(verbs.LKey(stag), s.ep.PD, 0, 0, 0)
	return !errors.Is(err, nic.ErrKey)
}

// pageLen is what PageBounds checks bounds by.
const pageLen = 4096

// paged is memory with the rest of its pages before and behind it, in which there
// is nothing. Offsets count from the first page on.
type paged struct {
	nic.Memory
	before uint64
}

// inside is the part of n octets at off that is there: where it begins in them,
// how long it is, and where it is in the memory.
func (p paged) inside(n int, off uint64) (from, size int, at uint64) {
	first, last := max(off, p.before), min(off+uint64(n), p.before+p.Memory.Len())
	if first >= last {
		return 0, 0, 0
	}
	return int(first - off), int(last - first), first - p.before
}

// ReadAt implements nic.Memory.
func (p paged) ReadAt(b []byte, off uint64) error {
	clear(b)
	from, size, at := p.inside(len(b), off)
	return p.Memory.ReadAt(b[from:from+size], at)
}

// WriteAt implements nic.Memory.
func (p paged) WriteAt(b []byte, off uint64) error {
	from, size, at := p.inside(len(b), off)
	return p.Memory.WriteAt(b[from:from+size], at)
}

// Update implements nic.Memory.
func (p paged) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	var word [atomicLen]byte
	if err := p.ReadAt(word[:], off); err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(word[:])
	binary.LittleEndian.PutUint64(word[:], f(old))
	return old, p.WriteAt(word[:], off)
}

// updateWrongly is memory whose words are not changed as they should be.
func (s *Stream) updateWrongly(mem nic.Memory, req *wire.AtomicRequest) nic.Memory {
	switch defects := s.defects(); {
	case defects.FetchAddCompares && req.Op == wire.AtomicFetchAdd:
		return comparing{mem, req}
	case defects.AtomicTorn && s.ep.Layer.Later != nil:
		return torn{mem, s.ep.Layer.Later}
	}
	return mem
}

// comparing changes a word only if it is as a FetchAdd's unused fields say.
type comparing struct {
	nic.Memory
	req *wire.AtomicRequest
}

// Update implements nic.Memory.
func (c comparing) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	mask := c.req.CompareMask
	unused := mask == ^uint64(0) && c.req.Compare == 0 // as they are sent if nobody means them
	return c.Memory.Update(off, func(v uint64) uint64 {
		if !unused && v&mask != c.req.Compare&mask {
			return v
		}
		return f(v)
	})
}

// torn writes later what it makes of what it reads now.
type torn struct {
	nic.Memory
	later func(do func())
}

// Update implements nic.Memory.
func (t torn) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	old, err := t.Memory.Update(off, func(v uint64) uint64 { return v })
	if err == nil {
		word := binary.LittleEndian.AppendUint64(nil, f(old))
		t.later(func() { _ = t.WriteAt(word, off) }) // it may be gone by then
	}
	return old, err
}
