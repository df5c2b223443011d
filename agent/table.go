package agent

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// maxObjects limits the open objects of a client.
	maxObjects = 1 << 20
	// keptObjects limits the closed objects that are kept, and can still be called.
	// Calls on older ones return ErrClosed.
	keptObjects = 4096
)

// entry is an object of the agent.
type entry struct {
	handle  handle
	object  any
	context *entry // its context; itself for a context
	device  string // of a context
	memory  *hostMemory
	closed  bool
}

// isContext reports whether the object is a device context, not made from another object.
func (e *entry) isContext() bool { return e.context == e }

// table maps handles to the objects of a session.
type table struct {
	mu      sync.Mutex
	last    handle
	entries map[handle]*entry
	known   map[any]*entry // by object
	open    int            // number of open objects
	closed  []handle       // of closed objects, oldest first
}

func newTable() *table {
	return &table{entries: make(map[handle]*entry), known: make(map[any]*entry)}
}

// add returns a new entry for an object that was made from parent, which is nil for a context. A
// call may return an object that exists: if it is open and of the same context, add returns its
// entry.
func (t *table) add(parent, object any) (*entry, error) {
	if !reflect.TypeOf(object).Comparable() {
		return nil, fmt.Errorf("%w: objects of type %T are not comparable", verbs.ErrNotSupported, object)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var context *entry
	if parent != nil {
		parentEntry := t.known[parent]
		if parentEntry == nil {
			return nil, fmt.Errorf("%w: its parent object is closed", verbs.ErrClosed)
		}
		context = parentEntry.context
		if e := t.known[object]; e != nil && e.context == context && !e.closed {
			return e, nil
		}
	}
	if t.open >= maxObjects {
		return nil, fmt.Errorf("%w: the limit of %d objects per client is reached", verbs.ErrNoMemory, maxObjects)
	}
	t.last++
	t.open++
	e := &entry{handle: t.last, object: object, context: context}
	if context == nil {
		e.context = e
	}
	t.entries[e.handle], t.known[object] = e, e
	return e, nil
}

// entryOf returns the entry of an object; nil if there is none.
func (t *table) entryOf(object any) *entry {
	if !reflect.TypeOf(object).Comparable() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[object]
}

// openEntries returns the open entries for which match returns true, the newest first:
// objects come before those that they were made from.
func (t *table) openEntries(match func(*entry) bool) (all []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if !e.closed && match(e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return int(b.handle) - int(a.handle) })
	return all
}

// markClosed marks an object as closed, and for a context all objects made from it. It keeps the
// last keptObjects closed objects, so that the device itself answers calls on them. It returns the
// memory of closed regions for the caller to release.
func (t *table) markClosed(e *entry) (released []*hostMemory) {
	if e.isContext() {
		for _, part := range t.openEntries(func(o *entry) bool { return o.context == e && o != e }) {
			released = append(released, t.markClosed(part)...)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.closed {
		return released
	}
	e.closed = true
	t.open--
	if e.memory != nil {
		released = append(released, e.memory)
		e.memory = nil
	}
	t.closed = append(t.closed, e.handle)
	for len(t.closed) > keptObjects {
		old := t.entries[t.closed[0]]
		t.closed = t.closed[1:]
		delete(t.entries, old.handle)
		if t.known[old.object] == old {
			delete(t.known, old.object)
		}
	}
	return released
}

// handleOf returns the handle of an object of this session, or foreign for other objects.
func (t *table) handleOf(object any) handle {
	if e := t.entryOf(object); e != nil {
		return e.handle
	}
	return foreign
}

// objectOf returns the object of a handle, as a value of the interface type typ. For the handle
// foreign, which stands for objects of other clients and providers, it returns an object that the
// device must reject.
func (t *table) objectOf(h handle, typ reflect.Type) (reflect.Value, error) {
	if h == foreign {
		if object, ok := foreignObjects[typ]; ok {
			return object, nil
		}
		return reflect.Value{}, fmt.Errorf("%w: foreign object of type %v", verbs.ErrInvalid, typ)
	}
	t.mu.Lock()
	e, last := t.entries[h], t.last
	t.mu.Unlock()
	switch {
	case e == nil && h <= last:
		return reflect.Value{}, fmt.Errorf("object %d: %w", h, verbs.ErrClosed)
	case e == nil:
		return reflect.Value{}, fmt.Errorf("%w: no object %d", verbs.ErrNotFound, h)
	}
	v := reflect.ValueOf(e.object)
	if !v.Type().Implements(typ) {
		return reflect.Value{}, fmt.Errorf("%w: object %d is a %T, not a %v", verbs.ErrInvalid, h, e.object, typ)
	}
	return v, nil
}

// foreignObjects stand, by type, for objects that are not the agent's. The device must reject them.
var foreignObjects = map[reflect.Type]reflect.Value{
	reflect.TypeFor[verbs.PD]():          reflect.ValueOf(foreignPD{}),
	reflect.TypeFor[verbs.XRCD]():        reflect.ValueOf(foreignXRCD{}),
	reflect.TypeFor[verbs.CompChannel](): reflect.ValueOf(foreignChannel{}),
	reflect.TypeFor[verbs.CQ]():          reflect.ValueOf(foreignCQ{}),
	reflect.TypeFor[verbs.SRQ]():         reflect.ValueOf(foreignSRQ{}),
	reflect.TypeFor[verbs.QP]():          reflect.ValueOf(foreignQP{}),
	reflect.TypeFor[verbs.MR]():          reflect.ValueOf(foreignMR{}),
	reflect.TypeFor[verbs.MW]():          reflect.ValueOf(foreignMW{}),
	reflect.TypeFor[verbs.AH]():          reflect.ValueOf(foreignAH{}),
}

type (
	foreignPD      struct{ verbs.PD }
	foreignXRCD    struct{ verbs.XRCD }
	foreignChannel struct{ verbs.CompChannel }
	foreignCQ      struct{ verbs.CQ }
	foreignSRQ     struct{ verbs.SRQ }
	foreignQP      struct{ verbs.QP }
	foreignMR      struct{ verbs.MR }
	foreignMW      struct{ verbs.MW }
	foreignAH      struct{ verbs.AH }
)
