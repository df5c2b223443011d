package rig

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// guard is how much memory around a region is watched.
const guard = 64

// Memory is a registered region with memory around it that nobody may touch.
type Memory struct {
	verbs.MR
	// Buf is the region's memory. It is filled at first, with what no [Pattern] has.
	Buf []byte
	all []byte
	was []byte
	// seen has the device finish what it is at: what it wrote before, a program may
	// look at then, whatever told it that there is something to see; and what it
	// writes afterwards comes behind such a look.
	seen func()
}

// Memory registers n bytes, filled with what no [Pattern] has.
func (r *Rig) Memory(n int, access verbs.Access) *Memory { return r.MemoryIn(r.PD, n, access) }

// MemoryIn registers n bytes in another protection domain.
func (r *Rig) MemoryIn(pd verbs.PD, n int, access verbs.Access) *Memory {
	m := &Memory{all: fill(n+2*guard, byte(r.Rand.Uint32())), seen: r.see}
	m.Buf = m.all[guard:][:n:n]
	m.was = bytes.Clone(m.all)
	var err error
	m.MR, err = pd.RegMR(verbs.MRInit{Buf: m.Buf, Access: access})
	r.Do("a memory region", err)
	return m
}

// SGE is n bytes of the region from off on.
func (m *Memory) SGE(off, n int) verbs.SGE { return verbs.SGEOf(m.MR, off, n) }

// List is the same as a list of one.
func (m *Memory) List(off, n int) []verbs.SGE { return []verbs.SGE{m.SGE(off, n)} }

// Remote names the region to a peer, from off on.
func (m *Memory) Remote(off int) verbs.Remote {
	return verbs.Remote{Addr: m.Addr() + uint64(off), RKey: m.RKey()}
}

// fill returns what memory contains at first. It rises in threes where a [Pattern] rises
// by one, so that of bytes in a row at most every 128th is what a message would have put
// there: one that was not placed shows.
func fill(n int, which byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = which + 3*byte(i) + byte(i>>8)*89
	}
	return b
}

// Pattern returns n bytes that tell where in which pattern they are from.
func Pattern(n int, which byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = which + byte(i) + byte(i>>8)*31
	}
	return b
}

// Holds ends the case unless the region has these bytes from off on.
func (r *Rig) Holds(m *Memory, off int, want []byte) {
	m.seen()
	got := m.Buf[off:][:len(want)]
	if bytes.Equal(got, want) {
		m.seen()
		return
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	k := min(i+8, len(want))
	r.Fail(fmt.Sprintf("% x at byte %d of the memory", want[i:k], off+i), "% x", got[i:k])
}

// Untouched ends the case if anything of the region, or around it, has changed
// since it was made or last Accepted, except for n bytes from off on.
func (r *Rig) Untouched(m *Memory, off, n int) {
	m.seen()
	for i := range m.all {
		if k := i - guard; m.all[i] != m.was[i] && (k < off || k >= off+n) {
			r.Fail(fmt.Sprintf("byte %d of the memory (%d bytes) is left alone", k, len(m.Buf)), "%#02x in place of %#02x", m.all[i], m.was[i])
		}
	}
	m.seen()
}

// Accept takes the memory as it is now for what Untouched compares with.
func (m *Memory) Accept() {
	m.seen()
	copy(m.was, m.all)
	m.seen()
}

// see calls a verb that changes nothing.
func (r *Rig) see() {
	_, err := r.Device.QueryPort(1)
	r.Do("a port that can be queried", err)
}
