package nic

import (
	"encoding/binary"
	"fmt"
)

// keyGenerator generates the keys of a Table: a name, the upper 24 bits, and a tag. With the zero
// value the name is the index of the entry, and the tag counts the uses of the index.
type keyGenerator struct {
	secret [16]byte
	drawn  uint64
	index  map[uint32]uint32 // by name: index of the entry; nil if the name is the index
}

const nameMask = MaxEntries

// Scramble makes keys unpredictable for peers that do not know the secret, even if they know many
// keys. It must be called before any entry is added. A zero secret restores sequential keys.
func (t *Table) Scramble(secret [16]byte) {
	if len(t.slots) > 1 {
		panic(fmt.Sprintf("nic: Scramble of a table with %d entries: their keys are in use", len(t.slots)-1))
	}
	t.keys = keyGenerator{}
	if secret != ([16]byte{}) {
		t.keys = keyGenerator{secret: secret, index: make(map[uint32]uint32)}
	}
}

// sequential reports whether the name of an entry, the upper bits of its key, is its index.
func (g *keyGenerator) sequential() bool { return g.index == nil }

// draw returns an unused random name for the entry at index i, and a tag: the upper and
// lower bits of its key. It never returns name 0, because key 0 is invalid.
func (g *keyGenerator) draw(i uint32) (name uint32, tag uint8) {
	for {
		x := g.next()
		name = uint32(x) & nameMask
		if _, taken := g.index[name]; name != 0 && !taken {
			g.index[name] = i
			return name, uint8(x >> 32)
		}
	}
}

// next returns the next pseudorandom number: the keyed hash of a counter.
func (g *keyGenerator) next() uint64 {
	i := g.drawn
	g.drawn++
	return g.hash(i)
}

// hash returns the SipHash of i with the secret as key.
func (g *keyGenerator) hash(i uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], i)
	return SipHash(&g.secret, b[:])
}
