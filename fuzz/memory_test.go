package fuzz_test

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// memory is what a device under attack can reach, and what it must not. Between
// all its parts are bytes that nobody registered.
type memory struct {
	buf    []byte
	before []byte // as it was
	free   []span // what may change
	done   []span // what was complete, with what it held then
	next   int    // where the next sink is
	keep   int    // bytes of sinks that are not given out yet
	ids    map[uint64]span

	open   verbs.MR // a peer may read, write and use atomics
	shown  verbs.MR // a peer may only read
	own    verbs.MR // only the device reads
	sinks  verbs.MR // only the device writes: receives, results
	behind verbs.MR // reached through a window only
	alien  verbs.MR // of another domain
	window verbs.MW
	other  verbs.PD
}

type span struct {
	at, n int
	held  []byte
}

// The parts of a memory. Bytes between them belong to nobody.
const (
	openAt, openLen     = 0x400, 0x800
	shownAt, shownLen   = 0xe00, 0x400
	ownAt, ownLen       = 0x1400, 0x800
	behindAt, behindLen = 0x2000, 0x400
	windowAt, windowLen = 0x2100, 0x100
	alienAt, alienLen   = 0x2480, 0x300
	sinksAt, sinksLen   = 0x2800, 0x5000
	memoryLen           = 0x7c00
	// sinkGap is between two sinks, so that what is written beyond one shows.
	sinkGap = 16
)

const everyRight = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

func newMemory(pd, other verbs.PD) (*memory, error) {
	m := &memory{other: other, buf: make([]byte, memoryLen), next: sinksAt, keep: 0x600, ids: map[uint64]span{}}
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
	m.open = reg(pd, openAt, openLen, everyRight)
	m.shown = reg(pd, shownAt, shownLen, verbs.AccessRemoteRead)
	m.own = reg(pd, ownAt, ownLen, 0)
	m.behind = reg(pd, behindAt, behindLen, verbs.AccessLocalWrite|verbs.AccessMWBind)
	m.alien = reg(other, alienAt, alienLen, everyRight)
	m.sinks = reg(pd, sinksAt, sinksLen, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	m.free = []span{{at: openAt, n: openLen}, {at: windowAt, n: windowLen}}
	m.window, err = pd.AllocMW(verbs.MWType2)
	return m, err
}

// regions are all of them.
func (m *memory) regions() []verbs.MR {
	return []verbs.MR{m.open, m.shown, m.own, m.sinks, m.behind, m.alien}
}

// sink is memory for a request to write to: nobody else's, in two pieces if that
// makes sense. There is none when all is used up.
func (m *memory) sink(id uint64, n int) ([]verbs.SGE, bool) {
	if m.next+n+sinkGap > sinksAt+sinksLen-m.keep {
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

// source is memory to send from.
func (m *memory) source(at, n int) []verbs.SGE {
	return []verbs.SGE{verbs.SGEOf(m.own, at%(ownLen-n), n)}
}

// complete says that a request is over: its memory is the program's from now on.
func (m *memory) complete(id uint64) {
	if s, ok := m.ids[id]; ok {
		delete(m.ids, id)
		s.held = slices.Clone(m.buf[s.at : s.at+s.n])
		m.done = append(m.done, s)
	}
}

// check says what has changed that must not.
func (m *memory) check() error {
	for _, s := range m.done {
		if now := m.buf[s.at : s.at+s.n]; !bytes.Equal(now, s.held) {
			return fmt.Errorf("the %d bytes at %#x changed after the request was complete that they belonged to", s.n, s.at)
		}
	}
	// What may have changed is put back, and nothing else may differ.
	now := slices.Clone(m.buf)
	back := func(s span) { copy(now[s.at:s.at+s.n], m.before[s.at:]) }
	for _, s := range m.free {
		back(s)
	}
	for _, s := range m.done {
		back(s)
	}
	for _, s := range m.ids {
		back(s)
	}
	for i := range now {
		if now[i] != m.before[i] {
			return fmt.Errorf("byte %#x of the memory was %#x and is %#x: it is %s", i, m.before[i], now[i], partOf(i))
		}
	}
	return nil
}

// partOf says whose a byte is.
func partOf(i int) string {
	for _, p := range []struct {
		at, n int
		is    string
	}{
		{shownAt, shownLen, "for peers to read, not to write"},
		{ownAt, ownLen, "for the device to read, not to write"},
		{behindAt, behindLen, "outside of the window in its region"},
		{alienAt, alienLen, "of another protection domain"},
		{sinksAt, sinksLen, "of no request that was posted"},
	} {
		if i >= p.at && i < p.at+p.n {
			return p.is
		}
	}
	return "registered for nobody"
}
