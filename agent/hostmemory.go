package agent

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// maxMemories and maxMemory limit the number and the total size of a client's memories.
	maxMemories = 1 << 14
	maxMemory   = 2 << 30
	// maxUnacked limits the changed blocks that the client has not acknowledged.
	maxUnacked = 1 << 22

	pageLen = 4096
)

// hostMemory is the agent's copy of a client's memory.
type hostMemory struct {
	mirror
	id      memoryID
	regions int  // number of regions that use it
	dropped bool // the client has dropped it
}

// hostMemories are the memories of a session. Changes of the device win over the client's.
type hostMemories struct {
	sendLock *sync.Mutex // held while sending

	mu    sync.Mutex
	all   map[memoryID]*hostMemory
	limit uint64 // of bytes
	bytes uint64
	sent  uint64 // number of memory frames sent
	// unacked are changed blocks in frames that the client has not acknowledged. The client
	// does not know these changes, and its own changes of the same bytes are ignored.
	unacked      map[blockOf][]sentChange
	unackedOrder []sentBlock // the blocks of unacked, in the order of sending
}

type blockOf struct {
	id    memoryID
	block int
}

// sentChange has the bytes of a block that were sent in a frame.
type sentChange struct {
	frame uint64
	mask  uint64
}

type sentBlock struct {
	frame uint64
	at    blockOf
}

// newHostMemories returns the agent's side of the copies of registered memory.
func newHostMemories() *hostMemories {
	return &hostMemories{sendLock: new(sync.Mutex), all: make(map[memoryID]*hostMemory), limit: maxMemory, unacked: make(map[blockOf][]sentChange)}
}

// apply processes a memory frame of the client: its acknowledgement, then its changes.
func (m *hostMemories) apply(body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return readRecords(body, m.forget, m.handle)
}

// acknowledge removes the changes in the first memory frames, as many as the client has received so
// far, from the unacknowledged ones.
func (m *hostMemories) acknowledge(frames uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(frames)
}

// forget removes the changes in the memory frames up to this number from the unacknowledged ones,
// because the client has received those frames. The caller holds the lock.
func (m *hostMemories) forget(frames uint64) {
	n := 0
	for _, s := range m.unackedOrder {
		if s.frame > frames {
			break
		}
		n++
		if rest := m.unacked[s.at][1:]; len(rest) > 0 {
			m.unacked[s.at] = rest
		} else {
			delete(m.unacked, s.at)
		}
	}
	m.unackedOrder = m.unackedOrder[n:]
	if len(m.unackedOrder) == 0 {
		m.unackedOrder = nil
	}
}

// handle applies a record of the client's memory frame: it allocates or drops a memory, or stores a
// change, except for bytes that the device has changed since. The caller holds the lock.
func (m *hostMemories) handle(r *record) error {
	mem := m.all[r.id]
	switch {
	case r.kind == recordNew && mem != nil:
		return fmt.Errorf("%w: memory %d exists already", errBadMessage, r.id)
	case r.kind == recordNew:
		// Memory beyond the limit is not allocated; registering it fails later.
		if len(m.all) < maxMemories && r.length <= m.limit-m.bytes {
			m.all[r.id] = &hostMemory{id: r.id, mirror: mirror{live: allocate(int(r.length), int(r.align%pageLen)), shadow: make([]byte, r.length)}}
			m.bytes += r.length
		}
	case mem == nil: // not allocated, or dropped
	case r.kind == recordDrop:
		mem.dropped = true
		m.freeIfUnused(mem)
	case !mem.within(&r.change):
		return fmt.Errorf("%w: change outside of memory %d of %d bytes", errBadMessage, r.id, len(mem.live))
	default: // changes of the device that the client does not know yet are newer
		for _, f := range m.unacked[blockOf{r.id, r.change.block}] {
			r.change.mask &^= f.mask
		}
		mem.storeUnchanged(&r.change)
	}
	return nil
}

// allocate returns n bytes whose address modulo the page size is pageOffset, as at the client.
func allocate(n, pageOffset int) []byte {
	b := make([]byte, n+pageLen)
	off := (pageOffset - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%pageLen) + pageLen) % pageLen
	return b[off:][:n:n]
}

// freeIfUnused frees memory that the client has dropped and no region uses.
func (m *hostMemories) freeIfUnused(mem *hostMemory) {
	if mem.dropped && mem.regions == 0 && m.all[mem.id] == mem {
		delete(m.all, mem.id)
		m.bytes -= uint64(len(mem.live))
	}
}

// use returns the memory that the client named for a region, and the region's part of it. unuse
// releases the memory. A region of no bytes has no memory; its part is nil if the client's buffer
// is, and else empty.
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
		return nil, nil, fmt.Errorf("%w: the agent's limit is %d MiB in %d memories per client", verbs.ErrNoMemory, m.limit>>20, maxMemories)
	case in.Offset < 0 || in.Length < 0 || in.Offset > len(mem.live) || in.Length > len(mem.live)-in.Offset:
		return nil, nil, fmt.Errorf("%w: %d bytes at offset %d of a memory of %d", verbs.ErrInvalid, in.Length, in.Offset, len(mem.live))
	}
	mem.regions++
	return mem, mem.live[in.Offset:][:in.Length:in.Length], nil
}

// unuse releases the memory of closed regions.
func (m *hostMemories) unuse(released ...*hostMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mem := range released {
		mem.regions--
		m.freeIfUnused(mem)
	}
}

// maxScans limits the scans of memory that changes all the time.
const maxScans = 16

// sendChanges sends the changes that the device has made in registered memory.
//
// A client that sees a write must see all earlier ones. A scan may find a write and miss an earlier
// one to memory already scanned. It is repeated until it finds no change, at most maxScans times.
// sendLock keeps the two ends of a loopback from sending at once.
func (m *hostMemories) sendChanges(send func([]byte)) error {
	m.sendLock.Lock()
	defer m.sendLock.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &recordWriter{send: func(body []byte) {
		m.sent++
		send(body)
	}}
	for range maxScans {
		found := false
		for id, mem := range m.all {
			if mem.dropped {
				continue
			}
			mem.changes(func(c *change) {
				found = true
				at, frame := blockOf{id, c.block}, m.sent+1 // number of the frame that w fills
				m.unacked[at] = append(m.unacked[at], sentChange{frame, c.mask})
				m.unackedOrder = append(m.unackedOrder, sentBlock{frame, at})
				w.add(&record{kind: recordChange, id: id, change: *c})
			})
		}
		if !found {
			break
		}
	}
	w.flush()
	if len(m.unackedOrder) > maxUnacked {
		return fmt.Errorf("the client does not acknowledge memory frames: %d changes are pending", len(m.unackedOrder))
	}
	return nil
}
