package agent

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// blockLen is the unit of changes: a mask of one word marks the changed bytes of a block.
const blockLen = 64

// scanLen is the unit of comparison while nothing has changed.
const scanLen = 4096

// mirror is one end's copy of registered memory.
type mirror struct {
	// live is the memory itself: the program's at one end, the device's at the other.
	live []byte
	// shadow is the state of the other end after all frames that were sent have arrived.
	shadow []byte
}

// change is a changed block: the new values of the bytes in mask.
type change struct {
	block int
	mask  uint64
	now   [blockLen]byte
}

// changes calls report for all blocks that differ from the shadow, the contents last sent or
// received, and updates the shadow.
//
// The memory may be written concurrently. Each block is read once, so the sent and the
// remembered values agree; later writes are sent later. The race detector is disabled for
// live memory, as it does not see DMA of a device either. Live memory is not read with copy, which
// the race detector checks in every function.
//
//go:norace
func (m *mirror) changes(report func(*change)) {
	var c change
	for from := 0; from < len(m.live); from += scanLen {
		to := min(from+scanLen, len(m.live))
		if equal(m.live[from:to], m.shadow[from:to]) {
			continue
		}
		for at := from; at < to; at += blockLen {
			c.block, c.mask = at/blockLen, 0
			n := load(&c.now, m.live[at:to])
			was := m.shadow[at:][:n]
			for i := range was {
				if was[i] != c.now[i] {
					c.mask |= 1 << i
				}
			}
			if c.mask != 0 {
				copy(was, c.now[:n])
				report(&c)
			}
		}
	}
}

// overwrite stores the bytes of the change, also in the shadow: they are not sent back.
//
//go:norace
func (m *mirror) overwrite(c *change) {
	store(m.live[c.block*blockLen:], c.mask, &c.now)
	store(m.shadow[c.block*blockLen:], c.mask, &c.now)
}

// storeUnchanged stores the bytes of the change, except those that were changed here since the last
// update of the shadow. The shadow takes all bytes, and the local changes are sent later.
//
//go:norace
func (m *mirror) storeUnchanged(c *change) {
	live, shadow := m.live[c.block*blockLen:], m.shadow[c.block*blockLen:]
	ours := uint64(0)
	for i := range min(blockLen, len(live)) {
		if live[i] != shadow[i] {
			ours |= 1 << i
		}
	}
	store(live, c.mask&^ours, &c.now)
	store(shadow, c.mask, &c.now)
}

// store stores the bytes whose bit in mask is set. It stores a complete word of 8 bytes at once,
// for concurrent readers of the word.
//
//go:norace
func store(to []byte, mask uint64, from *[blockLen]byte) {
	for w := 0; w < blockLen; w += 8 {
		switch part := byte(mask >> w); part {
		case 0:
		case 0xff:
			binary.NativeEndian.PutUint64(to[w:], binary.NativeEndian.Uint64(from[w:]))
		default:
			for i := w; i < w+8; i++ {
				if mask&(1<<i) != 0 {
					to[i] = from[i]
				}
			}
		}
	}
}

// load copies a block word by word and returns its length; the last block may be shorter.
//
//go:norace
func load(to *[blockLen]byte, from []byte) int {
	n := min(blockLen, len(from))
	i := 0
	for ; i+8 <= n; i += 8 {
		binary.NativeEndian.PutUint64(to[i:], binary.NativeEndian.Uint64(from[i:]))
	}
	for ; i < n; i++ {
		to[i] = from[i]
	}
	return n
}

// within reports whether the change is inside the memory.
func (m *mirror) within(c *change) bool {
	if c.block > len(m.live)/blockLen {
		return false
	}
	n := min(blockLen, len(m.live)-c.block*blockLen) // length of the block; 0 if it begins at the end
	return n == blockLen || c.mask>>n == 0
}

// append encodes the change: block, mask, bytes.
func (c *change) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.block))
	b = binary.BigEndian.AppendUint64(b, c.mask)
	if c.mask == wholeBlock {
		return append(b, c.now[:]...)
	}
	for rest := c.mask; rest != 0; rest &= rest - 1 {
		b = append(b, c.now[bits.TrailingZeros64(rest)])
	}
	return b
}

// wholeBlock is the mask of all bytes of a block.
const wholeBlock = ^uint64(0)

// maxChangeLen is the maximum length that append writes.
const maxChangeLen = binary.MaxVarintLen64 + 8 + blockLen

// parse decodes the change from the start of b and returns the rest.
func (c *change) parse(b []byte) ([]byte, error) {
	const maxBlock = (1 << 40) / blockLen // beyond any memory, and block*blockLen cannot overflow
	block, size := binary.Uvarint(b)
	if size <= 0 || block > maxBlock || len(b) < size+8 {
		return nil, fmt.Errorf("%w: invalid change", errBadMessage)
	}
	c.block, c.mask = int(block), binary.BigEndian.Uint64(b[size:])
	b = b[size+8:]
	if len(b) < bits.OnesCount64(c.mask) {
		return nil, fmt.Errorf("%w: truncated change of %d bytes", errBadMessage, len(b))
	}
	if c.mask == wholeBlock {
		return b[copy(c.now[:], b):], nil
	}
	for rest := c.mask; rest != 0; rest &= rest - 1 {
		c.now[bits.TrailingZeros64(rest)] = b[0]
		b = b[1:]
	}
	return b, nil
}
