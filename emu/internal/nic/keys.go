package nic

import (
	"encoding/binary"
	"fmt"
)

// names assigns the upper 24 bits of keys. The zero value uses the index of the
// entry, and a tag that counts the uses of the index.
type names struct {
	secret [16]byte
	drawn  uint64
	at     map[uint32]uint32 // index of the entry with a name
}

const nameMask = MaxEntries

// Scramble makes keys unpredictable without secret, even if many are known. It must
// be called before any entry is added. A zero secret restores sequential keys.
func (t *Table) Scramble(secret [16]byte) {
	if len(t.slots) > 1 {
		panic(fmt.Sprintf("nic: Scramble of a table with %d entries: their keys are in use", len(t.slots)-1))
	}
	t.names = names{}
	if secret != ([16]byte{}) {
		t.names = names{secret: secret, at: make(map[uint32]uint32)}
	}
}

// plain reports whether the name of an entry, the upper bits of its key, is its index.
func (n *names) plain() bool { return n.at == nil }

// draw returns an unused random name for the entry at index i, and a tag: the upper and
// lower bits of its key. It never returns name 0, because key 0 is invalid.
func (n *names) draw(i uint32) (name uint32, tag uint8) {
	for {
		x := n.next()
		name = uint32(x) & nameMask
		if _, taken := n.at[name]; name != 0 && !taken {
			n.at[name] = i
			return name, uint8(x >> 32)
		}
	}
}

// next returns the next pseudorandom number.
func (n *names) next() uint64 {
	i := n.drawn
	n.drawn++
	return n.sum(i)
}

func (n *names) sum(i uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], i)
	return SipHash(&n.secret, b[:])
}
