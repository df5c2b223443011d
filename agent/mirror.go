package agent

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// blockLen is how much of a region is told of at once: a mask of one word says which
// of its bytes have changed.
const blockLen = 64

// scanLen is how much is compared at a time while nothing has changed.
const scanLen = 4096

// mirror is one end's copy of registered memory.
type mirror struct {
	// live is the memory itself: the program's at one end, the device's at the other.
	live []byte
	// shadow is what the other end has, or will have when what is on its way has
	// arrived.
	shadow []byte
}

// change is what has become of a block: of the bytes in mask.
type change struct {
	block int
	mask  uint64
	now   [blockLen]byte
}

// changes tells what differs from the shadow, and takes it for told.
//
// Somebody may be writing at the same time. Each block is read once, so that what is
// told and what is remembered are the same; what comes later is told later. The race
// detector is kept out of all that touches live memory, as it does not see a device's DMA
// either; so what calls it by itself, as copy does, is not used there.
//
//go:norace
func (m *mirror) changes(tell func(*change)) {
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
				tell(&c)
			}
		}
	}
}

// overwrite has the bytes of the change in the memory, whatever was there.
//
//go:norace
func (m *mirror) overwrite(c *change) {
	put(m.live[c.block*blockLen:], c.mask, &c.now)
	put(m.shadow[c.block*blockLen:], c.mask, &c.now)
}

// yield is overwrite, except that bytes which were changed here since the shadow was
// true stay as they are. The other end has what it told us all the same, and will be
// told of ours.
//
//go:norace
func (m *mirror) yield(c *change) {
	live, shadow := m.live[c.block*blockLen:], m.shadow[c.block*blockLen:]
	ours := uint64(0)
	for i := range min(blockLen, len(live)) {
		if live[i] != shadow[i] {
			ours |= 1 << i
		}
	}
	put(live, c.mask&^ours, &c.now)
	put(shadow, c.mask, &c.now)
}

// put stores the bytes of the mask. Words that are in it as a whole are stored as one,
// so that who looks at an aligned word meanwhile sees the old or the new one.
//
//go:norace
func put(to []byte, mask uint64, from *[blockLen]byte) {
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

// load copies a block, or what there is of one, word by word.
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

// within reports whether the mirror has the bytes of the change.
func (m *mirror) within(c *change) bool {
	if c.block > len(m.live)/blockLen {
		return false
	}
	n := min(blockLen, len(m.live)-c.block*blockLen)
	return n == blockLen || c.mask>>n == 0
}

// append writes the change: the block, the mask, the bytes.
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

// maxChangeLen is the most that append writes.
const maxChangeLen = binary.MaxVarintLen64 + 8 + blockLen

func (c *change) parse(b []byte) ([]byte, error) {
	const maxBlock = 1 << 40 / blockLen
	block, size := binary.Uvarint(b)
	if size <= 0 || block > maxBlock || len(b) < size+8 {
		return nil, fmt.Errorf("%w: a changed block", errBadMessage)
	}
	c.block, c.mask = int(block), binary.BigEndian.Uint64(b[size:])
	b = b[size+8:]
	if len(b) < bits.OnesCount64(c.mask) {
		return nil, fmt.Errorf("%w: a changed block of %d bytes", errBadMessage, len(b))
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
