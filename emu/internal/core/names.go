package core

import "fmt"

// names makes keys hard to guess: it shuffles the numbers that they are made of.
// The zero value leaves them as they are.
type names struct {
	odd, inverse [2]uint32
}

const nameMask = MaxEntries

// Scramble makes the keys of the table follow no visible order. Whoever does not
// know secret cannot tell from one key what the next will be, though a determined
// one could find out from many: a key that is guessed still opens only what its
// protection domain has. It must come before anything is entered. Zero restores
// the plain order.
func (t *Table) Scramble(secret uint64) {
	if len(t.slots) > 1 {
		panic(fmt.Sprintf("core: Scramble of a table with %d entries: their keys are in use", len(t.slots)-1))
	}
	t.names = names{}
	if secret == 0 {
		return
	}
	for i := range t.names.odd {
		odd := uint32(secret>>(32*i))&nameMask | 1
		t.names.odd[i], t.names.inverse[i] = odd, inverse(odd)
	}
}

// inverse is the number whose product with odd is 1, of the lowest bits.
func inverse(odd uint32) uint32 {
	x := odd // right in three bits; every step doubles them
	for range 4 {
		x *= 2 - odd*x
	}
	return x & nameMask
}

// scramble turns an index into the upper part of a key; 0 stays 0.
func (n *names) scramble(x uint32) uint32 {
	if n.odd[0] == 0 {
		return x
	}
	x = fold(x) * n.odd[0] & nameMask
	return fold(fold(x) * n.odd[1] & nameMask)
}

// unscramble undoes scramble.
func (n *names) unscramble(x uint32) uint32 {
	if n.odd[0] == 0 {
		return x
	}
	x = fold(fold(x) * n.inverse[1] & nameMask)
	return fold(x * n.inverse[0] & nameMask)
}

// fold mixes the upper half of a name into the lower. It undoes itself.
func fold(x uint32) uint32 { return x ^ x>>12 }
