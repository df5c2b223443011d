package mpi

import "github.com/fabrictest/fabrictest/mpi/coll"

// Scratch memory of up to maxKeptScratch stays with its execution. Of larger memory, up to maxLargeScratch,
// a rank keeps one: new memory would be cleared, and registered with the NICs, in each operation.
const (
	maxKeptScratch  = 64 << 10
	maxLargeScratch = 32 << 20
)

// takeScratch gives the execution n bytes of scratch memory.
func (x *execution) takeScratch(n int) {
	k, s := x.c.rank, &x.buffers[coll.Scratch]
	if n > cap(*s) && n <= cap(k.largeScratch) {
		*s, k.largeScratch = k.largeScratch, nil
	}
	if n > cap(*s) {
		*s = make([]byte, n)
	}
	*s = (*s)[:n]
}

// freeScratch takes large scratch memory from the execution. The rank keeps the largest.
func (x *execution) freeScratch() {
	k, s := x.c.rank, &x.buffers[coll.Scratch]
	n := cap(*s)
	if n <= maxKeptScratch {
		return
	}
	if n <= maxLargeScratch && n > cap(k.largeScratch) {
		k.largeScratch = *s
	}
	*s = nil
}
