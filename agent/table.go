package agent

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// maxObjects is how many objects a caller may have open.
	maxObjects = 1 << 20
	// keptObjects is how many closed objects still answer for themselves. Those that
	// were closed before them are forgotten, and said to be closed.
	keptObjects = 4096
)

// entry is an object at the agent.
type entry struct {
	handle handle
	object any
	root   *entry // the context that it belongs to; itself for a context
	device string // of a context
	memory *hostMemory
	closed bool
}

// table is the objects of a session by their handles.
type table struct {
	mu      sync.Mutex
	last    handle
	entries map[handle]*entry
	known   map[any]*entry
	live    int
	gone    []handle // closed, oldest first
}

func newTable() *table {
	return &table{entries: make(map[handle]*entry), known: make(map[any]*entry)}
}

// add returns the entry of an object that was made from another; from is nil for a
// context. What is there already keeps its handle.
func (t *table) add(from, object any) (*entry, error) {
	if !reflect.TypeOf(object).Comparable() {
		return nil, fmt.Errorf("%w: an object of type %T cannot be told from others", verbs.ErrNotSupported, object)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var root *entry
	if from != nil {
		maker := t.known[from]
		if maker == nil {
			return nil, fmt.Errorf("%w: what it was made from is forgotten", verbs.ErrClosed)
		}
		root = maker.root
		if e := t.known[object]; e != nil && e.root == root && !e.closed {
			return e, nil
		}
	}
	if t.live >= maxObjects {
		return nil, fmt.Errorf("%w: a caller may have %d objects at a time", verbs.ErrNoMemory, maxObjects)
	}
	t.last++
	t.live++
	e := &entry{handle: t.last, object: object, root: root}
	if root == nil {
		e.root = e
	}
	t.entries[e.handle], t.known[object] = e, e
	return e, nil
}

// of returns the entry of an object; nil if it has none.
func (t *table) of(object any) *entry {
	if !reflect.TypeOf(object).Comparable() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[object]
}

// openOnes returns the entries that nobody has closed and that are chosen, the newest
// first: so that what was made from others comes before them.
func (t *table) openOnes(chosen func(*entry) bool) (all []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if !e.closed && chosen(e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return int(b.handle) - int(a.handle) })
	return all
}

// forget notes that an object is closed, and what was made from it if it is a context.
// It returns their memory, of which the device lets go.
func (t *table) forget(e *entry) (free []*hostMemory) {
	if e.root == e {
		for _, part := range t.openOnes(func(o *entry) bool { return o.root == e && o != e }) {
			free = append(free, t.forget(part)...)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.closed {
		return free
	}
	e.closed = true
	t.live--
	if e.memory != nil {
		free = append(free, e.memory)
		e.memory = nil
	}
	t.gone = append(t.gone, e.handle)
	for len(t.gone) > keptObjects {
		old := t.entries[t.gone[0]]
		t.gone = t.gone[1:]
		delete(t.entries, old.handle)
		if t.known[old.object] == old {
			delete(t.known, old.object)
		}
	}
	return free
}

// handleOf implements objects.
func (t *table) handleOf(object any) handle {
	if e := t.of(object); e != nil {
		return e.handle
	}
	return foreign
}

// objectOf implements objects.
func (t *table) objectOf(h handle, typ reflect.Type) (reflect.Value, error) {
	if h == foreign {
		if s, ok := strangers[typ]; ok {
			return s, nil
		}
		return reflect.Value{}, fmt.Errorf("%w: a foreign object of type %v", verbs.ErrInvalid, typ)
	}
	t.mu.Lock()
	e, last := t.entries[h], t.last
	t.mu.Unlock()
	switch {
	case e == nil && h <= last:
		return reflect.Value{}, fmt.Errorf("object %d: %w", h, verbs.ErrClosed)
	case e == nil:
		return reflect.Value{}, fmt.Errorf("%w: there is no object %d", verbs.ErrNotFound, h)
	}
	v := reflect.ValueOf(e.object)
	if !v.Type().Implements(typ) {
		return reflect.Value{}, fmt.Errorf("%w: object %d is a %T, which is no %v", verbs.ErrInvalid, h, e.object, typ)
	}
	return v, nil
}

// strangers stand for objects that are none of the agent's, so that a device sees what
// it has to refuse.
var strangers = map[reflect.Type]reflect.Value{
	reflect.TypeFor[verbs.PD]():          reflect.ValueOf(strangePD{}),
	reflect.TypeFor[verbs.XRCD]():        reflect.ValueOf(strangeXRCD{}),
	reflect.TypeFor[verbs.CompChannel](): reflect.ValueOf(strangeChannel{}),
	reflect.TypeFor[verbs.CQ]():          reflect.ValueOf(strangeCQ{}),
	reflect.TypeFor[verbs.SRQ]():         reflect.ValueOf(strangeSRQ{}),
	reflect.TypeFor[verbs.QP]():          reflect.ValueOf(strangeQP{}),
	reflect.TypeFor[verbs.MR]():          reflect.ValueOf(strangeMR{}),
	reflect.TypeFor[verbs.MW]():          reflect.ValueOf(strangeMW{}),
	reflect.TypeFor[verbs.AH]():          reflect.ValueOf(strangeAH{}),
}

type (
	strangePD      struct{ verbs.PD }
	strangeXRCD    struct{ verbs.XRCD }
	strangeChannel struct{ verbs.CompChannel }
	strangeCQ      struct{ verbs.CQ }
	strangeSRQ     struct{ verbs.SRQ }
	strangeQP      struct{ verbs.QP }
	strangeMR      struct{ verbs.MR }
	strangeMW      struct{ verbs.MW }
	strangeAH      struct{ verbs.AH }
)
