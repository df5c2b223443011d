package agent

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// programMemory is memory of the program that the agent has a copy of.
type programMemory struct {
	mirror
	id      memoryID
	base    uintptr // of the first byte
	regions int     // that use it
}

// programMemories is all of a client's.
type programMemories struct {
	send func(frame []byte)
	// turn is held by whoever sends.
	turn *sync.Mutex

	mu   sync.Mutex
	last memoryID
	all  map[memoryID]*programMemory
	got  uint64 // memory frames of the agent's
}

func newProgramMemories(send func([]byte)) *programMemories {
	return &programMemories{send: send, turn: new(sync.Mutex), all: make(map[memoryID]*programMemory)}
}

func (m *programMemories) lock() {
	m.turn.Lock()
	m.mu.Lock()
}

func (m *programMemories) unlock() {
	m.mu.Unlock()
	m.turn.Unlock()
}

// use returns the memory that a region is in, and where. The agent is told of it if it
// is new: what the device gets lies in its page as the program's memory does or, where
// the program chooses the region's address, as that does, for devices of Linux register
// memory at no other.
func (m *programMemories) use(init *verbs.MRInit) (mem *programMemory, offset int) {
	buf := init.Buf
	if len(buf) == 0 {
		return nil, 0
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	m.lock()
	defer m.unlock()
	for _, mem := range m.all {
		if base >= mem.base && base-mem.base <= uintptr(len(mem.live)) && uintptr(len(buf)) <= uintptr(len(mem.live))-(base-mem.base) {
			mem.regions++
			return mem, int(base - mem.base)
		}
	}
	m.last++
	mem = &programMemory{mirror: mirror{live: buf[:len(buf):len(buf)], shadow: make([]byte, len(buf))}, id: m.last, base: base, regions: 1}
	m.all[mem.id] = mem
	align := uint64(base)
	if init.Addr != 0 || init.Access&verbs.AccessZeroBased != 0 {
		align = init.Addr
	}
	m.record(&record{kind: recordNew, id: mem.id, length: uint64(len(buf)), align: align % pageLen})
	return mem, 0
}

// unuse says that a region is gone.
func (m *programMemories) unuse(mem *programMemory) {
	if mem == nil {
		return
	}
	m.lock()
	defer m.unlock()
	if mem.regions--; mem.regions == 0 {
		delete(m.all, mem.id)
		m.record(&record{kind: recordDrop, id: mem.id})
	}
}

func (m *programMemories) record(r *record) {
	w := &recordWriter{got: m.got, send: m.send}
	w.add(r)
	w.flush()
}

// tell sends what the program has changed, and returns how many frames have come.
func (m *programMemories) tell() (got uint64) {
	m.lock()
	defer m.unlock()
	w := &recordWriter{got: m.got, send: m.send}
	r := record{kind: recordChange}
	for id, mem := range m.all {
		mem.changes(func(c *change) {
			r.id, r.change = id, *c
			w.add(&r)
		})
	}
	w.flush()
	return m.got
}

// take has the program see what the device has changed.
func (m *programMemories) take(body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got++
	return readRecords(body, func(uint64) {}, func(r *record) error {
		mem := m.all[r.id]
		switch {
		case r.kind != recordChange:
			return fmt.Errorf("%w: the agent makes no memory", errBadMessage)
		case mem == nil: // it was dropped meanwhile
		case !mem.within(&r.change):
			return fmt.Errorf("%w: a change outside of memory %d of %d bytes", errBadMessage, r.id, len(mem.live))
		default:
			mem.overwrite(&r.change)
		}
		return nil
	})
}
