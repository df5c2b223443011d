package agent

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// maxMemories and maxMemory are how many pieces of memory, and how many bytes of
	// it, a caller may have at an agent.
	maxMemories = 1 << 14
	maxMemory   = 2 << 30
	// maxUnseen is how many changed blocks may be on their way to a caller.
	maxUnseen = 1 << 22

	pageLen = 4096
)

// hostMemory is the agent's copy of a caller's memory.
type hostMemory struct {
	mirror
	id      memoryID
	regions int  // of the device that use it
	dropped bool // the caller has no use for it any more
}

// hostMemories is all of a session's. The device's changes go before the caller's.
type hostMemories struct {
	turn *sync.Mutex // held by whoever sends

	mu    sync.Mutex
	all   map[memoryID]*hostMemory
	limit uint64 // of bytes
	bytes uint64
	sent  uint64 // memory frames
	// unseen are blocks that were sent in frames which the caller has not got yet: what
	// it says of their bytes it says without knowing of ours, and ours stay.
	unseen map[blockOf][]flight
	order  []sentBlock
}

type blockOf struct {
	id    memoryID
	block int
}

// flight is a part of a block that was sent in a frame.
type flight struct {
	frame uint64
	mask  uint64
}

type sentBlock struct {
	frame uint64
	at    blockOf
}

func newHostMemories() *hostMemories {
	return &hostMemories{turn: new(sync.Mutex), all: make(map[memoryID]*hostMemory), limit: maxMemory, unseen: make(map[blockOf][]flight)}
}

// take carries out what a memory frame says.
func (m *hostMemories) take(body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return readRecords(body, m.got, m.record)
}

// seen notes how many memory frames the caller has got.
func (m *hostMemories) seen(frames uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got(frames)
}

func (m *hostMemories) got(frames uint64) {
	n := 0
	for _, s := range m.order {
		if s.frame > frames {
			break
		}
		n++
		if rest := m.unseen[s.at][1:]; len(rest) > 0 {
			m.unseen[s.at] = rest
		} else {
			delete(m.unseen, s.at)
		}
	}
	m.order = m.order[n:]
	if len(m.order) == 0 {
		m.order = nil
	}
}

func (m *hostMemories) record(r *record) error {
	mem := m.all[r.id]
	switch {
	case r.kind == recordNew && mem != nil:
		return fmt.Errorf("%w: memory %d is there already", errBadMessage, r.id)
	case r.kind == recordNew:
		// What does not fit is not there: the caller learns it when it registers.
		if len(m.all) < maxMemories && r.length <= m.limit-m.bytes {
			m.all[r.id] = &hostMemory{id: r.id, mirror: mirror{live: allocate(int(r.length), int(r.align%pageLen)), shadow: make([]byte, r.length)}}
			m.bytes += r.length
		}
	case mem == nil: // it was not there, or is not there any more
	case r.kind == recordDrop:
		mem.dropped = true
		m.free(mem)
	case !mem.within(&r.change):
		return fmt.Errorf("%w: a change outside of memory %d of %d bytes", errBadMessage, r.id, len(mem.live))
	default:
		for _, f := range m.unseen[blockOf{r.id, r.change.block}] {
			r.change.mask &^= f.mask
		}
		mem.yield(&r.change)
	}
	return nil
}

// allocate returns memory whose address is this modulo the page, as the caller's is.
func allocate(n, align int) []byte {
	b := make([]byte, n+pageLen)
	off := (align - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%pageLen) + pageLen) % pageLen
	return b[off:][:n:n]
}

// free lets go of memory that nobody uses.
func (m *hostMemories) free(mem *hostMemory) {
	if mem.dropped && mem.regions == 0 && m.all[mem.id] == mem {
		delete(m.all, mem.id)
		m.bytes -= uint64(len(mem.live))
	}
}

// use returns a part of a memory for a region.
func (m *hostMemories) use(in *newMR) (*hostMemory, []byte, error) {
	switch {
	case in.Nil:
		return nil, nil, nil
	case in.Memory == 0 && in.Length == 0:
		return nil, []byte{}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mem := m.all[in.Memory]
	switch {
	case mem == nil:
		return nil, nil, fmt.Errorf("%w: the agent keeps %d MiB in %d pieces for a caller, and no more", verbs.ErrNoMemory, m.limit>>20, maxMemories)
	case in.Offset < 0 || in.Length < 0 || in.Offset > len(mem.live) || in.Length > len(mem.live)-in.Offset:
		return nil, nil, fmt.Errorf("%w: %d bytes from %d on, of memory with %d", verbs.ErrInvalid, in.Length, in.Offset, len(mem.live))
	}
	mem.regions++
	return mem, mem.live[in.Offset:][:in.Length:in.Length], nil
}

// unuse says that regions are gone.
func (m *hostMemories) unuse(gone ...*hostMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mem := range gone {
		mem.regions--
		m.free(mem)
	}
}

// steadyLooks is how often memory is looked at that changes all the time.
const steadyLooks = 16

// tell sends what the device has changed.
//
// A device writes in some order, and whoever sees a later write must see the earlier
// ones. One look at a lot of memory can find a late write and have missed an early
// one, so it is looked at until there is nothing new.
func (m *hostMemories) tell(send func([]byte)) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &recordWriter{send: func(frame []byte) {
		m.sent++
		send(frame)
	}}
	for range steadyLooks {
		found := false
		for id, mem := range m.all {
			if mem.dropped {
				continue
			}
			mem.changes(func(c *change) {
				found = true
				at := blockOf{id, c.block}
				m.unseen[at] = append(m.unseen[at], flight{m.sent + 1, c.mask})
				m.order = append(m.order, sentBlock{m.sent + 1, at})
				w.add(&record{kind: recordChange, id: id, change: *c})
			})
		}
		if !found {
			break
		}
	}
	w.flush()
	if len(m.order) > maxUnseen {
		return fmt.Errorf("the caller does not say what it has got: %d changes are on their way", len(m.order))
	}
	return nil
}
