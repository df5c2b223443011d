package mpi

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/window"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// partLen is the length of what ranks tell each other of their parts of a window:
// size, address, keys, how many of these, and flags.
const segmentLen = 8 + 8 + 4*wire.MaxRails + 2

// The flags.
const (
	segmentAtomics    = 1 << iota // NICs can change any of it
	segmentNICAtomics             // its NICs can change that of others
	segmentFailed                 // there is none
)

func encodeSegment(p *window.Segment, flags byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, segmentLen), uint64(p.Size))
	b = binary.LittleEndian.AppendUint64(b, p.Memory.Addr)
	for _, key := range p.Memory.Keys {
		b = binary.LittleEndian.AppendUint32(b, key)
	}
	return append(b, p.Memory.Rails, flags)
}

func decodeSegment(b []byte) (p window.Segment, flags byte) {
	p.Size = int(binary.LittleEndian.Uint64(b))
	p.Memory.Addr = binary.LittleEndian.Uint64(b[8:])
	for i := range p.Memory.Keys {
		p.Memory.Keys[i] = binary.LittleEndian.Uint32(b[16+4*i:])
	}
	p.Memory.Rails, flags = b[segmentLen-2], b[segmentLen-1]
	return p, flags
}

// tellParts tells the others of this rank's part of a window, or that there is none,
// and returns those of all. Accumulates are by NICs only if all ranks' NICs can, for
// those by NICs and those by targets must not meet.
func (c *Comm) exchangeSegments(local window.Segment, capable bool, failed error) ([]window.Segment, error) {
	var flags byte
	if local.Atomics {
		flags |= segmentAtomics
	}
	if capable {
		flags |= segmentNICAtomics
	}
	if failed != nil {
		flags |= segmentFailed
	}
	all := make([]byte, segmentLen*c.size)
	if err := c.allgather(encodeSegment(&local, flags), all); err != nil {
		return nil, errors.Join(failed, err)
	}
	parts := make([]window.Segment, c.size)
	allCapable := true
	for i := range parts {
		parts[i], flags = decodeSegment(all[segmentLen*i:])
		parts[i].Peer, parts[i].Atomics = c.worldRank(i), flags&segmentAtomics != 0
		allCapable = allCapable && flags&segmentNICAtomics != 0
		if flags&segmentFailed != 0 && failed == nil {
			failed = fmt.Errorf("%w: rank %d of %s has no memory for it", ErrWin, i, c.name)
		}
	}
	for i := range parts {
		parts[i].Atomics = parts[i].Atomics && allCapable
	}
	return parts, failed
}
