package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// segmentLen is the length of an encoded segment: size, address, keys, number of keys,
// flags.
const segmentLen = 8 + 8 + 4*wire.MaxRails + 2

// Flags of an encoded segment.
const (
	segmentAtomics    = 1 << iota // NIC atomics work on all of its words
	segmentNICAtomics             // the NICs of its rank support atomics
	segmentFailed                 // the rank has no segment
)

// encodeSegment encodes a segment and its flags (segmentAtomics, …) in segmentLen bytes.
func encodeSegment(s *window.Segment, flags byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, segmentLen), uint64(s.Size))
	b = binary.LittleEndian.AppendUint64(b, s.Memory.Addr)
	for _, key := range s.Memory.Keys {
		b = binary.LittleEndian.AppendUint32(b, key)
	}
	return append(b, s.Memory.Rails, flags)
}

// decodeSegment decodes the segment and the flags that encodeSegment encoded.
func decodeSegment(b []byte) (s window.Segment, flags byte) {
	s.Size = int(binary.LittleEndian.Uint64(b))
	s.Memory.Addr = binary.LittleEndian.Uint64(b[8:])
	for i := range s.Memory.Keys {
		s.Memory.Keys[i] = binary.LittleEndian.Uint32(b[16+4*i:])
	}
	s.Memory.Rails, flags = b[segmentLen-2], b[segmentLen-1]
	return s, flags
}

// exchangeSegments gathers the window segments of all ranks. failed is why this rank has none;
// all ranks return an error then. It enables NIC atomics only if all ranks' NICs support them,
// since accumulates by NICs and by target CPUs are not atomic with each other.
func (c *Comm) exchangeSegments(local window.Segment, supportsAtomics bool, failed error) ([]window.Segment, error) {
	var flags byte
	if local.Atomics {
		flags |= segmentAtomics
	}
	if supportsAtomics {
		flags |= segmentNICAtomics
	}
	if failed != nil {
		flags |= segmentFailed
	}
	all := make([]byte, segmentLen*c.size)
	if err := c.allgather(encodeSegment(&local, flags), all); err != nil {
		return nil, errors.Join(failed, err)
	}
	segments := make([]window.Segment, c.size)
	allSupportAtomics := true
	for i := range segments {
		segments[i], flags = decodeSegment(all[segmentLen*i:])
		segments[i].Peer, segments[i].Atomics = c.worldRank(i), flags&segmentAtomics != 0
		allSupportAtomics = allSupportAtomics && flags&segmentNICAtomics != 0
		if flags&segmentFailed != 0 && failed == nil {
			failed = fmt.Errorf("%w: rank %d of %s failed to create its segment", ErrWin, i, c.name)
		}
	}
	for i := range segments {
		segments[i].Atomics = segments[i].Atomics && allSupportAtomics
	}
	return segments, failed
}
