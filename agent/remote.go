package agent

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// ref is a reference to an object at the agent.
type ref struct {
	c *Client
	h handle
}

// refOf gives Client.handleOf access to the ref that an object embeds.
func (r *ref) refOf() *ref { return r }

// call makes a call on the object, with more arguments, and decodes the result; nil for no result.
func (r *ref) call(v *verb, result any, args ...any) error {
	return v.call(r.c, result, append([]any{r}, args...)...)
}

// Close closes the object.
func (r *ref) Close() error {
	err := r.call(callClose, nil)
	if err == nil {
		r.c.recordClosed(r.h)
	}
	return err
}

// create makes a call that returns an object with its attributes, and returns the client's object
// of that handle, an existing or a new one; the zero T, without error, for handle 0. The object
// exists before later frames, which may refer to it, are processed.
func create[T, Attributes any](on *ref, v *verb, newObject func(ref, Attributes) T, args ...any) (object T, err error) {
	c := on.c
	err = v.invoke(c, append([]any{on}, args...), func(b []byte) ([]byte, error) {
		var h handle
		b, err := decodeFront(b, &h, c)
		if err != nil || h == 0 {
			return b, err
		}
		var attributes Attributes
		if b, err = decodeFront(b, &attributes, c); err == nil {
			object = getOrCreate(c, h, func() T { return newObject(ref{c, h}, attributes) })
		}
		return b, err
	})
	return object, err
}

// remoteContext is an opened device.
type remoteContext struct {
	ref
	info verbs.DeviceInfo

	mu      sync.Mutex
	regions map[*remoteMR]bool // nil if the device is closed
}

var _ verbs.Context = (*remoteContext)(nil)

func (d *remoteContext) Info() verbs.DeviceInfo { return d.info }

func (d *remoteContext) QueryDevice() (attr verbs.DeviceAttr, err error) {
	err = d.call(callQueryDevice, &attr)
	return attr, err
}

func (d *remoteContext) QueryPort(port uint8) (attr verbs.PortAttr, err error) {
	err = d.call(callQueryPort, &attr, port)
	return attr, err
}

func (d *remoteContext) QueryGID(port uint8, index int) (entry verbs.GIDEntry, err error) {
	err = d.call(callQueryGID, &entry, port, index)
	return entry, err
}

func (d *remoteContext) QueryPKey(port uint8, index int) (key uint16, err error) {
	err = d.call(callQueryPKey, &key, port, index)
	return key, err
}

func (d *remoteContext) AllocPD() (verbs.PD, error) {
	return create(&d.ref, callAllocPD, func(r ref, _ none) verbs.PD { return &remotePD{r, d} })
}

func (d *remoteContext) CreateCompChannel() (verbs.CompChannel, error) {
	return create(&d.ref, callCreateChannel, func(r ref, _ none) verbs.CompChannel { return &remoteChannel{r} })
}

func (d *remoteContext) CreateCQ(init verbs.CQInit) (verbs.CQ, error) {
	return create(&d.ref, callCreateCQ, func(r ref, _ none) verbs.CQ { return &remoteCQ{ref: r} }, init)
}

func (d *remoteContext) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	return create(&d.ref, callCreateSRQ, func(r ref, number uint32) verbs.SRQ { return &remoteSRQ{r, number} }, init)
}

func newRemoteQP(r ref, a qpAttributes) verbs.QP { return &remoteQP{r, a} }

func (d *remoteContext) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	return create(&d.ref, callCreateQP, newRemoteQP, init)
}

func (d *remoteContext) OpenXRCD() (verbs.XRCD, error) {
	return create(&d.ref, callOpenXRCD, func(r ref, _ none) verbs.XRCD { return &remoteXRCD{r} })
}

func (d *remoteContext) OpenQP(x verbs.XRCD, n verbs.QPN) (verbs.QP, error) {
	return create(&d.ref, callOpenQP, newRemoteQP, x, n)
}

func (d *remoteContext) WaitAsync(timeout time.Duration) (event verbs.AsyncEvent, err error) {
	err = d.call(callWaitAsync, &event, timeout)
	return event, err
}

// Counters returns nil if the call fails.
func (d *remoteContext) Counters() (all []verbs.Counter) {
	_ = d.call(callCounters, &all)
	return all
}

func (d *remoteContext) CM() (verbs.CM, error) {
	return create(&d.ref, callCM, func(r ref, _ none) verbs.CM { return &remoteCM{r} })
}

// Close closes the device. The memory of its regions is no longer copied.
func (d *remoteContext) Close() error {
	if err := d.ref.Close(); err != nil {
		return err
	}
	d.mu.Lock()
	regions := d.regions
	d.regions = nil
	d.mu.Unlock()
	for mr := range regions {
		d.c.memory.unuse(mr.memory)
	}
	return nil
}

// remoteXRCD is an XRC domain.
type remoteXRCD struct{ ref }

// remotePD is a protection domain.
type remotePD struct {
	ref
	d *remoteContext
}

// RegMR implements verbs.PD. It announces the memory to the agent if that is new.
func (p *remotePD) RegMR(init verbs.MRInit) (verbs.MR, error) {
	mem, offset := p.c.memory.use(&init)
	in := newMR{Offset: offset, Length: len(init.Buf), Nil: init.Buf == nil, Addr: init.Addr, Access: init.Access}
	if mem != nil {
		in.Memory = mem.id
	}
	mr := &remoteMR{d: p.d, memory: mem}
	err := p.call(callRegMR, &mr.attr, in)
	p.d.mu.Lock()
	usesMemory := err == nil && p.d.regions != nil // nil: the device was closed meanwhile
	if usesMemory {
		p.d.regions[mr] = true
	}
	p.d.mu.Unlock()
	if !usesMemory {
		p.c.memory.unuse(mem)
	}
	if err != nil {
		return nil, err
	}
	mr.ref = ref{p.c, mr.attr.Handle}
	return mr, nil
}

func (p *remotePD) AllocMW(t verbs.MWType) (verbs.MW, error) {
	return create(&p.ref, callAllocMW, func(r ref, t verbs.MWType) verbs.MW { return &remoteMW{ref: r, mwType: t} }, t)
}

func (p *remotePD) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	return create(&p.ref, callCreateAH, func(r ref, attr verbs.AHAttr) verbs.AH { return &remoteAH{r, attr} }, attr)
}

// remoteMR is a memory region.
type remoteMR struct {
	ref
	d      *remoteContext
	memory *programMemory
	attr   registeredMR
}

func (m *remoteMR) LKey() verbs.LKey { return m.attr.LKey }
func (m *remoteMR) RKey() verbs.RKey { return m.attr.RKey }
func (m *remoteMR) Addr() uint64     { return m.attr.Addr }
func (m *remoteMR) Len() int         { return m.attr.Len }

// Close closes the region. Afterwards the device does not write to it.
func (m *remoteMR) Close() error {
	if err := m.ref.Close(); err != nil {
		return err
	}
	m.d.mu.Lock()
	usesMemory := m.d.regions[m] // false if the device was closed
	delete(m.d.regions, m)
	m.d.mu.Unlock()
	if usesMemory {
		m.c.memory.unuse(m.memory)
	}
	return nil
}

// remoteMW is a memory window.
type remoteMW struct {
	ref
	mwType    verbs.MWType
	lastKnown atomic.Uint32 // RKey
}

func (m *remoteMW) Type() verbs.MWType { return m.mwType }

// RKey queries the device, since binding changes the key. It returns the last key if that fails.
func (m *remoteMW) RKey() verbs.RKey {
	var key verbs.RKey
	if m.call(callMWKey, &key) == nil {
		m.lastKnown.Store(uint32(key))
	}
	return verbs.RKey(m.lastKnown.Load())
}

// remoteAH is an address handle.
type remoteAH struct {
	ref
	attr verbs.AHAttr
}

func (a *remoteAH) Attr() verbs.AHAttr { return a.attr }
