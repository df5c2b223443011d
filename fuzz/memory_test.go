package fuzz_test

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// memory is the memory of a checkedDevice: regions that it or its peer may access, with
// unregistered bytes between them.
type memory struct {
	buf       []byte
	before    []byte // the initial contents
	writable  []span // may change at any time
	completed []span // sinks of completed requests, with their contents
	next      int    // offset of the next sink
	reserved  int    // bytes of sinks for checkHonestPeer
	ids       map[uint64]span

	readWrite verbs.MR // a peer may read, write and use atomics
	readOnly  verbs.MR // a peer may only read
	local     verbs.MR // only the device may read
	sinks     verbs.MR // only the device may write: receives, results
	windowed  verbs.MR // accessible through a window only
	otherPD   verbs.MR // of another protection domain
	window    verbs.MW
	pd2       verbs.PD
}

type span struct {
	at, n int
	held  []byte
}

// Offsets and lengths of the regions.
const (
	readWriteAt, readWriteLen = 0x400, 0x800
	readOnlyAt, readOnlyLen   = 0xe00, 0x400
	localAt, localLen         = 0x1400, 0x800
	windowedAt, windowedLen   = 0x2000, 0x400
	windowAt, windowLen       = 0x2100, 0x100
	otherPDAt, otherPDLen     = 0x2480, 0x300
	sinksAt, sinksLen         = 0x2800, 0x5000
	memoryLen                 = 0x7c00
	// sinkGap separates sinks, so that writes beyond the end of one are detected.
	sinkGap = 16
)

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func newMemory(pd, other verbs.PD) (*memory, error) {
	m := &memory{pd2: other, buf: make([]byte, memoryLen), next: sinksAt, reserved: 0x600, ids: map[uint64]span{}}
	for i := range m.buf {
		m.buf[i] = byte(i*7 + i>>8)
	}
	m.before = slices.Clone(m.buf)
	var err error
	reg := func(pd verbs.PD, at, n int, access verbs.Access) verbs.MR {
		mr, e := pd.RegMR(verbs.MRInit{Buf: m.buf[at : at+n : at+n], Addr: 0x10000 + uint64(at), Access: access})
		if err == nil {
			err = e
		}
		return mr
	}
	m.readWrite = reg(pd, readWriteAt, readWriteLen, allAccess)
	m.readOnly = reg(pd, readOnlyAt, readOnlyLen, verbs.AccessRemoteRead)
	m.local = reg(pd, localAt, localLen, 0)
	m.windowed = reg(pd, windowedAt, windowedLen, verbs.AccessLocalWrite|verbs.AccessMWBind)
	m.otherPD = reg(other, otherPDAt, otherPDLen, allAccess)
	m.sinks = reg(pd, sinksAt, sinksLen, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	m.writable = []span{{at: readWriteAt, n: readWriteLen}, {at: windowAt, n: windowLen}}
	m.window, err = pd.AllocMW(verbs.MWType2)
	return m, err
}

// regions returns all regions.
func (m *memory) regions() []verbs.MR {
	return []verbs.MR{m.readWrite, m.readOnly, m.local, m.sinks, m.windowed, m.otherPD}
}

// sink returns memory for a request to write to, in two SGEs if it is long. It returns false if all
// is used.
func (m *memory) sink(id uint64, n int) ([]verbs.SGE, bool) {
	if m.next+n+sinkGap > sinksAt+sinksLen-m.reserved {
		return nil, false
	}
	at := m.next
	m.next += n + sinkGap
	m.ids[id] = span{at: at, n: n}
	first := n
	if n > 64 {
		first = 41
	}
	sgl := []verbs.SGE{verbs.SGEOf(m.sinks, at-sinksAt, first)}
	if first < n {
		sgl = append(sgl, verbs.SGEOf(m.sinks, at-sinksAt+first, n-first))
	}
	return sgl, true
}

// source returns memory to send from.
func (m *memory) source(at, n int) []verbs.SGE {
	return []verbs.SGE{verbs.SGEOf(m.local, at%(localLen-n), n)}
}

// complete records that a request completed: its memory must not change any more.
func (m *memory) complete(id uint64) {
	if s, ok := m.ids[id]; ok {
		delete(m.ids, id)
		s.held = slices.Clone(m.buf[s.at : s.at+s.n])
		m.completed = append(m.completed, s)
	}
}

// check returns an error if memory changed that must not.
func (m *memory) check() error {
	for _, s := range m.completed {
		if now := m.buf[s.at : s.at+s.n]; !bytes.Equal(now, s.held) {
			return fmt.Errorf("the %d bytes at %#x changed after their request had completed", s.n, s.at)
		}
	}
	// Restore what may change, and compare the rest.
	now := slices.Clone(m.buf)
	restore := func(s span) { copy(now[s.at:s.at+s.n], m.before[s.at:]) }
	for _, s := range m.writable {
		restore(s)
	}
	for _, s := range m.completed {
		restore(s)
	}
	for _, s := range m.ids {
		restore(s)
	}
	for i := range now {
		if now[i] != m.before[i] {
			return fmt.Errorf("byte %#x of the memory was %#x and is %#x: it is %s", i, m.before[i], now[i], partOf(i))
		}
	}
	return nil
}

// partOf describes the region of a byte.
func partOf(i int) string {
	for _, p := range []struct {
		at, n int
		is    string
	}{
		{readOnlyAt, readOnlyLen, "for peers to read, not to write"},
		{localAt, localLen, "for the device to read, not to write"},
		{windowedAt, windowedLen, "outside of the window in its region"},
		{otherPDAt, otherPDLen, "of another protection domain"},
		{sinksAt, sinksLen, "of no request that was posted"},
	} {
		if i >= p.at && i < p.at+p.n {
			return p.is
		}
	}
	return "not registered"
}
