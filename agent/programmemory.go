package agent

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

// programMemory is memory of the program with a copy at the agent.
type programMemory struct {
	mirror
	id      memoryID
	base    uintptr // address of the first byte
	regions int     // number of regions that use it
}

// programMemories are the memories of a client that regions use.
type programMemories struct {
	send func(body []byte)
	// sendLock is held while sending.
	sendLock *sync.Mutex

	mu       sync.Mutex
	last     memoryID
	all      map[memoryID]*programMemory
	received uint64 // number of memory frames received
}

// newProgramMemories returns the client's side of the copies of registered memory. It calls send
// with each frame for the agent, which has changes that the program made.
func newProgramMemories(send func([]byte)) *programMemories {
	return &programMemories{send: send, sendLock: new(sync.Mutex), all: make(map[memoryID]*programMemory)}
}

// lock takes mu, and sendLock so that frames are sent in the order in which they are made.
func (m *programMemories) lock() {
	m.sendLock.Lock()
	m.mu.Lock()
}

func (m *programMemories) unlock() {
	m.mu.Unlock()
	m.sendLock.Unlock()
}

// use returns the memory of a region and the offset in it, nil for an empty region. It announces new
// memory to the agent. The agent's copy has the same page offset as the program's memory, or as the
// address that the program chose for the region: Linux devices register memory only with that
// offset.
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
	addr := uint64(base)
	if init.Addr != 0 || init.Access&verbs.AccessZeroBased != 0 {
		addr = init.Addr
	}
	m.sendRecord(&record{kind: recordNew, id: mem.id, length: uint64(len(buf)), align: addr % pageLen})
	return mem, 0
}

// unuse ends a region's use of mem. After the last, it forgets mem and the agent drops its copy.
func (m *programMemories) unuse(mem *programMemory) {
	if mem == nil { // the region has no bytes
		return
	}
	m.lock()
	defer m.unlock()
	if mem.regions--; mem.regions == 0 {
		delete(m.all, mem.id)
		m.sendRecord(&record{kind: recordDrop, id: mem.id})
	}
}

// sendRecord sends a memory frame with one record.
func (m *programMemories) sendRecord(r *record) {
	w := &recordWriter{received: m.received, send: m.send}
	w.add(r)
	w.flush()
}

// sendChanges sends the changes that the program has made in registered memory. It returns the
// number of memory frames received so far, which the caller sends to acknowledge them.
func (m *programMemories) sendChanges() (received uint64) {
	m.lock()
	defer m.unlock()
	w := &recordWriter{received: m.received, send: m.send}
	r := record{kind: recordChange}
	for id, mem := range m.all {
		mem.changes(func(c *change) {
			r.id, r.change = id, *c
			w.add(&r)
		})
	}
	w.flush()
	return m.received
}

// apply applies a memory frame of the agent: changes that the device has made. It sends nothing,
// and does not need sendLock.
func (m *programMemories) apply(body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.received++
	ignoreAcks := func(uint64) {} // only the agent needs acknowledgements
	return readRecords(body, ignoreAcks, func(r *record) error {
		mem := m.all[r.id]
		switch {
		case r.kind != recordChange:
			return fmt.Errorf("%w: the agent must not create memory", errBadMessage)
		case mem == nil: // dropped meanwhile
		case !mem.within(&r.change):
			return fmt.Errorf("%w: change outside of memory %d of %d bytes", errBadMessage, r.id, len(mem.live))
		default:
			mem.overwrite(&r.change)
		}
		return nil
	})
}
