package rig

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// guard is the number of bytes before and after a region that are checked for changes.
const guard = 64

// Memory is a registered region with unregistered guard bytes around it.
type Memory struct {
	verbs.MR
	// Buf is the region's memory. Its initial content resembles no [Pattern].
	Buf      []byte
	all      []byte // Buf with the guard bytes
	snapshot []byte // the contents of all that ExpectUnchangedOutside compares with
	// orderWithDevice orders accesses by the device and by the case: the case sees what the device
	// wrote before, and the device writes later data only after the case has looked. It is a
	// verb that changes nothing.
	orderWithDevice func()
}

// Memory registers n bytes in r.PD, with unregistered guard bytes around them.
func (r *Rig) Memory(n int, access verbs.Access) *Memory { return r.MemoryIn(r.PD, n, access) }

// MemoryIn registers n bytes in a protection domain, with unregistered guard bytes around them.
// Their initial content resembles no [Pattern], the payload of messages.
func (r *Rig) MemoryIn(pd verbs.PD, n int, access verbs.Access) *Memory {
	m := &Memory{all: fill(n+2*guard, byte(r.Rand.Uint32()))}
	// Any verb takes the lock of an emulated device, or exchanges changed bytes with an agent.
	m.orderWithDevice = func() { r.QueryPort() }
	m.Buf = m.all[guard:][:n:n]
	m.snapshot = bytes.Clone(m.all)
	m.MR = Result(pd.RegMR(verbs.MRInit{Buf: m.Buf, Access: access}))(r, "a memory region")
	return m
}

// SGE returns a scatter/gather entry for n bytes of the region from off on.
func (m *Memory) SGE(off, n int) verbs.SGE { return verbs.SGEOf(m.MR, off, n) }

// SGL returns a scatter/gather list of one entry: n bytes of the region from off on.
func (m *Memory) SGL(off, n int) []verbs.SGE { return []verbs.SGE{m.SGE(off, n)} }

// WordOffset returns the offset of the n-th word of the region: eight bytes with an aligned
// address, as atomics need.
func (m *Memory) WordOffset(n int) int { return int(-m.Addr()&7) + 8*n }

// Remote returns the address and RKey with which a peer accesses the region from off on.
func (m *Memory) Remote(off int) verbs.Remote {
	return verbs.Remote{Addr: m.Addr() + uint64(off), RKey: m.RKey()}
}

// fill returns the initial content of memory, which starts with seed. Its bytes increase by 3
// and those of a [Pattern] by 1: no two consecutive bytes equal those of a message, and a
// message that was not placed is detected. The term with 89 makes 256-byte blocks differ.
func fill(n int, seed byte) []byte {
	const period = 1 << 16
	b := make([]byte, n)
	for i := range min(n, period) {
		b[i] = seed + 3*byte(i) + byte(i>>8)*89
	}
	for i := period; i < n; i *= 2 {
		copy(b[i:], b[:i])
	}
	return b
}

// Pattern returns n bytes of the test pattern that begins with first. Its bytes increase by 1;
// the term with 31 makes 256-byte blocks differ.
func Pattern(n int, first byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i) + byte(i>>8)*31
	}
	return b
}

// ExpectBytes fails the case unless the region contains want at offset off. It makes a verb call
// (orderWithDevice) before and after reading, to order its reads with the writes of the device.
func (r *Rig) ExpectBytes(m *Memory, off int, want []byte) {
	m.orderWithDevice()
	got := m.Buf[off:][:len(want)]
	if bytes.Equal(got, want) {
		m.orderWithDevice()
		return
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	end := min(i+8, len(want))
	r.Fail(fmt.Sprintf("% x at byte %d of the memory", want[i:end], off+i), "% x", got[i:end])
}

// CheckPrivateData fails the case unless private data is want, with or without zeros after it. where
// names the message or verb result that has the data.
func (r *Rig) CheckPrivateData(where string, got, want []byte) {
	ok := bytes.HasPrefix(got, want) && len(bytes.Trim(got[min(len(want), len(got)):], "\x00")) == 0
	r.Check(ok, fmt.Sprintf("%d bytes of private data in %s, % .8x …", len(want), where, want), "%d bytes, % .8x …", len(got), got)
}

// ExpectUntouched fails the case if one of the regions or its guard bytes have changed since
// registration or the last Snapshot.
func (r *Rig) ExpectUntouched(regions ...*Memory) {
	for _, m := range regions {
		r.ExpectUnchangedOutside(m, 0, 0)
	}
}

// ExpectUnchangedOutside fails the case if the region or its guard bytes have changed since
// registration or the last Snapshot, except for n bytes from off on.
func (r *Rig) ExpectUnchangedOutside(m *Memory, off, n int) {
	m.orderWithDevice() // earlier writes of the device are visible, and later ones wait for the second call
	r.expectUnchanged(m, 0, guard+off)
	r.expectUnchanged(m, guard+off+n, len(m.all))
	m.orderWithDevice()
}

// expectUnchanged fails the case if the bytes from:to of m.all differ from the snapshot.
func (r *Rig) expectUnchanged(m *Memory, from, to int) {
	if bytes.Equal(m.all[from:to], m.snapshot[from:to]) {
		return
	}
	for i := from; i < to; i++ {
		if m.all[i] != m.snapshot[i] {
			r.Fail(fmt.Sprintf("byte %d of the memory (%d bytes) is unchanged", i-guard, len(m.Buf)), "%#02x in place of %#02x", m.all[i], m.snapshot[i])
		}
	}
}

// Snapshot saves the content for ExpectUnchangedOutside to compare with. A verb call before and one
// after the copy order it with the writes of the device.
func (m *Memory) Snapshot() {
	m.orderWithDevice()
	copy(m.snapshot, m.all)
	m.orderWithDevice()
}

// bindID is the WRID of bind requests.
const bindID = 0xb1d

// BindWindow allocates a memory window of type 2 and binds it to n bytes of m from off on, by a
// send request of qp. It returns the window's key, or fails the case.
func (r *Rig) BindWindow(qp verbs.QP, m *Memory, off, n int, access verbs.Access) verbs.RKey {
	mw, err := r.PD.AllocMW(verbs.MWType2)
	r.Must("a window", err)
	key := verbs.NextRKey(mw.RKey())
	r.PostSend(qp, verbs.SendWR{
		WRID: bindID, Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
		Bind: verbs.Bind{MW: mw, RKey: key, Info: verbs.BindInfo{MR: m.MR, Addr: m.Addr() + uint64(off), Length: uint64(n), Access: access}},
	})
	r.ExpectCompletion(bindID, verbs.WCSuccess)
	return key
}
