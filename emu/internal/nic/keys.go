package nic

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/siphash"
)

// names decides the keys of a table. The zero value leaves them in plain order: the
// index of the entry, and a tag that counts how often the index was used.
type names struct {
	secret [16]byte
	drawn  uint64
	at     map[uint32]uint32 // the index of the entry that has a name
}

const nameMask = MaxEntries

// Scramble makes the keys of the table unpredictable for those who do not know secret,
// however many keys they have seen. A name is not used for the next entry when its entry
// goes away. Scramble must come before anything is entered. A zero secret restores the
// plain order.
func (t *Table) Scramble(secret [16]byte) {
	if len(t.slots) > 1 {
		panic(fmt.Sprintf("core: Scramble of a table with %d entries: their keys are in use", len(t.slots)-1))
	}
	t.names = names{}
	if secret != ([16]byte{}) {
		t.names = names{secret: secret, at: make(map[uint32]uint32)}
	}
}

// plain reports whether keys are in plain order.
func (n *names) plain() bool { return n.at == nil }

// draw returns a name for index i, and a tag. Name 0 is never given: key 0 stays invalid.
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

// next is the next number that names are made of.
func (n *names) next() uint64 {
	i := n.drawn
	n.drawn++
	return n.sum(i)
}

func (n *names) sum(i uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], i)
	return siphash.Sum(&n.secret, b[:])
}
