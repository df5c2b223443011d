package agent

import (
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// ref is a reference to an object at the agent.
type ref struct {
	c *Client
	h handle
}

func (r *ref) refOf() *ref { return r }

// Close closes the object.
func (r *ref) Close() error {
	_, err := callClose.call(r.c, on[closer]{r})
	if err == nil {
		r.c.closed(r.h)
	}
	return err
}

// remoteContext is an opened device.
type remoteContext struct {
	ref
	info verbs.DeviceInfo

	mu      sync.Mutex
	regions map[*remoteMR]bool
}

var _ verbs.Context = (*remoteContext)(nil)

func (d *remoteContext) Info() verbs.DeviceInfo { return d.info }

func (d *remoteContext) QueryDevice() (verbs.DeviceAttr, error) {
	return callQueryDevice.call(d.c, on[verbs.Context]{d})
}

func (d *remoteContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	return callQueryPort.call(d.c, onWith[verbs.Context, uint8]{d, port})
}

func (d *remoteContext) QueryGID(port uint8, index int) (verbs.GIDEntry, error) {
	return callQueryGID.call(d.c, onEntry{d, port, index})
}

func (d *remoteContext) QueryPKey(port uint8, index int) (uint16, error) {
	k, err := callQueryPKey.call(d.c, onEntry{d, port, index})
	return uint16(k.V), err
}

func (d *remoteContext) AllocPD() (pd verbs.PD, err error) {
	_, err = callAllocPD.callThen(d.c, on[verbs.Context]{d}, func(out *made) {
		pd = known(d.c, out.Handle, func() *remotePD { return &remotePD{ref{d.c, out.Handle}, d} })
	})
	return pd, err
}

func (d *remoteContext) CreateCompChannel() (ch verbs.CompChannel, err error) {
	_, err = callCreateChannel.callThen(d.c, on[verbs.Context]{d}, func(out *made) {
		ch = known(d.c, out.Handle, func() *remoteChannel { return &remoteChannel{ref{d.c, out.Handle}} })
	})
	return ch, err
}

func (d *remoteContext) CreateCQ(init verbs.CQInit) (cq verbs.CQ, err error) {
	_, err = callCreateCQ.callThen(d.c, onWith[verbs.Context, verbs.CQInit]{d, init}, func(out *made) {
		cq = known(d.c, out.Handle, func() *remoteCQ { return &remoteCQ{ref: ref{d.c, out.Handle}} })
	})
	return cq, err
}

func (d *remoteContext) CreateSRQ(init verbs.SRQInit) (srq verbs.SRQ, err error) {
	_, err = callCreateSRQ.callThen(d.c, onWith[verbs.Context, verbs.SRQInit]{d, init}, func(out *madeWith[uint32]) {
		srq = known(d.c, out.Handle, func() *remoteSRQ { return &remoteSRQ{ref{d.c, out.Handle}, out.Attr} })
	})
	return srq, err
}

func (d *remoteContext) qp(qp *verbs.QP) func(*madeQP) {
	return func(out *madeQP) {
		*qp = known(d.c, out.Handle, func() *remoteQP { return &remoteQP{ref{d.c, out.Handle}, out.QPN, out.Type} })
	}
}

func (d *remoteContext) CreateQP(init verbs.QPInit) (qp verbs.QP, err error) {
	_, err = callCreateQP.callThen(d.c, onWith[verbs.Context, verbs.QPInit]{d, init}, d.qp(&qp))
	return qp, err
}

func (d *remoteContext) OpenXRCD() (x verbs.XRCD, err error) {
	_, err = callOpenXRCD.callThen(d.c, on[verbs.Context]{d}, func(out *made) {
		x = known(d.c, out.Handle, func() *remoteXRCD { return &remoteXRCD{ref{d.c, out.Handle}} })
	})
	return x, err
}

func (d *remoteContext) OpenQP(x verbs.XRCD, n verbs.QPN) (qp verbs.QP, err error) {
	_, err = callOpenQP.callThen(d.c, secondQP{d, x, n}, d.qp(&qp))
	return qp, err
}

func (d *remoteContext) WaitAsync(timeout time.Duration) (verbs.AsyncEvent, error) {
	return callWaitAsync.call(d.c, onWith[verbs.Context, time.Duration]{d, timeout})
}

// Counters returns nil if the call fails.
func (d *remoteContext) Counters() []verbs.Counter {
	all, _ := callCounters.call(d.c, on[verbs.Context]{d})
	return all.V
}

func (d *remoteContext) CM() (cm verbs.CM, err error) {
	_, err = callCM.callThen(d.c, on[verbs.Context]{d}, func(out *made) {
		cm = known(d.c, out.Handle, func() *remoteCM { return &remoteCM{ref{d.c, out.Handle}} })
	})
	return cm, err
}

// Close closes the device. Its memory is no longer copied.
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

func (p *remotePD) RegMR(init verbs.MRInit) (verbs.MR, error) {
	mem, offset := p.c.memory.use(&init)
	in := newMR{On: p, Offset: offset, Length: len(init.Buf), Nil: init.Buf == nil, Addr: init.Addr, Access: init.Access}
	if mem != nil {
		in.Memory = mem.id
	}
	mr := &remoteMR{d: p.d, memory: mem}
	_, err := callRegMR.callThen(p.c, in, func(out *madeMR) {
		mr.ref, mr.attr = ref{p.c, out.Handle}, *out
		p.d.mu.Lock()
		defer p.d.mu.Unlock()
		if p.d.regions != nil {
			p.d.regions[mr] = true
		}
	})
	if err != nil {
		p.c.memory.unuse(mem)
		return nil, err
	}
	return mr, nil
}

func (p *remotePD) AllocMW(kind verbs.MWType) (mw verbs.MW, err error) {
	_, err = callAllocMW.callThen(p.c, onWith[verbs.PD, verbs.MWType]{p, kind}, func(out *madeWith[verbs.MWType]) {
		mw = &remoteMW{ref: ref{p.c, out.Handle}, kind: out.Attr}
	})
	return mw, err
}

func (p *remotePD) CreateAH(attr verbs.AHAttr) (ah verbs.AH, err error) {
	_, err = callCreateAH.callThen(p.c, onWith[verbs.PD, verbs.AHAttr]{p, attr}, func(out *madeWith[verbs.AHAttr]) {
		ah = &remoteAH{ref{p.c, out.Handle}, out.Attr}
	})
	return ah, err
}

// remoteMR is a memory region.
type remoteMR struct {
	ref
	d      *remoteContext
	memory *programMemory
	attr   madeMR
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
	mine := m.d.regions[m]
	delete(m.d.regions, m)
	m.d.mu.Unlock()
	if mine {
		m.c.memory.unuse(m.memory)
	}
	return nil
}

// remoteMW is a memory window.
type remoteMW struct {
	ref
	kind verbs.MWType

	mu   sync.Mutex
	last verbs.RKey
}

func (m *remoteMW) Type() verbs.MWType { return m.kind }

// RKey queries the device, since binding changes the key. If the call fails it returns the
// last known key.
func (m *remoteMW) RKey() verbs.RKey {
	k, err := callMWKey.call(m.c, on[verbs.MW]{m})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.last = k.V
	}
	return m.last
}

// remoteAH is an address handle.
type remoteAH struct {
	ref
	attr verbs.AHAttr
}

func (a *remoteAH) Attr() verbs.AHAttr { return a.attr }
