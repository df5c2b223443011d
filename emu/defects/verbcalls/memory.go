package verbcalls

import (
	"reflect"
	"sync/atomic"

	"github.com/fabrictest/fabrictest/verbs"
)

// domain is a verbs.PD.
type domain struct {
	verbs.PD
	handle
	first atomic.Pointer[region] // MRKeysRepeat
}

func (p *domain) sound() verbs.PD { return p.PD }

// AllocPD makes a protection domain.
func (d *device) AllocPD() (verbs.PD, error) {
	p, err := makes(d, "PDs", d.Context.AllocPD)
	if err != nil {
		return nil, err
	}
	return &domain{PD: p, handle: handle{d: d}}, nil
}

// Close removes the domain.
func (p *domain) Close() error { return p.close(p.PD) }

// region is a verbs.MR.
type region struct {
	verbs.MR
	handle
	buf   []byte
	first *region // of the domain
}

func (r *region) sound() verbs.MR { return r.MR }

// RegMR registers memory, elsewhere or with more rights than was asked for.
func (p *domain) RegMR(in verbs.MRInit) (verbs.MR, error) {
	q := &p.d.q
	if q.HintsRefused && in.Access&verbs.AccessOptionalMask != 0 {
		return nil, refused("reg_mr", verbs.ErrInvalid, "unknown access flags")
	}
	if q.MRAddrIgnored && in.Access&verbs.AccessZeroBased == 0 {
		in.Addr = 0
	}
	written := in.Access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0
	if q.LocalWriteUnchecked || q.MRAccessUnchecked && written {
		in.Access |= verbs.AccessLocalWrite
	}
	m, err := makes(p.d, "MRs", func() (verbs.MR, error) { return p.PD.RegMR(in) })
	if err != nil {
		return nil, p.answers(err)
	}
	r := &region{MR: m, handle: handle{d: p.d}, buf: in.Buf}
	p.first.CompareAndSwap(nil, r)
	r.first = p.first.Load()
	if q.DeregOverlapping || q.SGEClamped {
		p.d.keep(m, r)
	}
	return r, nil
}

// LKey names the region in work requests: by MRKeysRepeat another one.
func (r *region) LKey() verbs.LKey {
	if r.d.q.MRKeysRepeat {
		return r.first.MR.LKey()
	}
	return r.MR.LKey()
}

// RKey names the region to peers: by MRKeysRepeat another one.
func (r *region) RKey() verbs.RKey {
	if r.d.q.MRKeysRepeat {
		return r.first.MR.RKey()
	}
	return r.MR.RKey()
}

// Close deregisters the memory, and by DeregOverlapping every region that has some
// of it.
func (r *region) Close() error {
	err := r.close(r.MR)
	if err == nil && r.d.q.DeregOverlapping {
		for _, other := range kept(r.d, func(x *region) bool { return overlap(x.buf, r.buf) }) {
			_ = other.close(other.MR) // one with windows stays
		}
	}
	return err
}

// overlap reports whether two slices share memory.
func overlap(a, b []byte) bool {
	at := func(s []byte) uintptr { return reflect.ValueOf(s).Pointer() }
	return at(a) < at(b)+uintptr(len(b)) && at(b) < at(a)+uintptr(len(a))
}

// window is a verbs.MW.
type window struct {
	verbs.MW
	handle
	born  verbs.RKey  // its key when it was made
	bound atomic.Bool // a bind was posted
}

func (w *window) sound() verbs.MW { return w.MW }

// AllocMW makes a memory window, by KindsUnchecked one of a type that there is.
func (p *domain) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	if p.d.q.ClaimsAndRefuses {
		return nil, notTheDevices("alloc_mw")
	}
	if p.d.q.KindsUnchecked && typ != verbs.MWType1 && typ != verbs.MWType2 {
		if typ = verbs.MWType2; p.d.truth().Caps.Has(verbs.CapMWType1) {
			typ = verbs.MWType1
		}
	}
	m, err := makes(p.d, "MWs", func() (verbs.MW, error) { return p.PD.AllocMW(typ) })
	if err != nil {
		return nil, p.answers(err)
	}
	return &window{MW: m, handle: handle{d: p.d}, born: m.RKey()}, nil
}

// RKey is the key, by some defects that of long ago.
func (w *window) RKey() verbs.RKey {
	if w.d.q.MWKeyStale || w.d.q.BindKeepsKey && w.Type() == verbs.MWType1 {
		return w.born
	}
	return w.MW.RKey()
}

// Close frees the window, unless BoundMWBusy has it in use.
func (w *window) Close() error {
	if w.d.q.BoundMWBusy && w.bound.Load() {
		return refused("dealloc_mw", verbs.ErrBusy, "it is bound")
	}
	return w.close(w.MW)
}

// BindMW binds a window. With MWTypesMixed it also binds windows of type 2, by a work
// request; with BindKeepsKey it returns the first R_Key of the window again.
func (p *pair) BindMW(mw verbs.MW, id uint64, flags verbs.SendFlags, info verbs.BindInfo) (key verbs.RKey, err error) {
	info.MR = its(info.MR)
	if p.d.q.MWTypesMixed && mw != nil && mw.Type() == verbs.MWType2 {
		key = verbs.NextRKey(mw.RKey())
		wr := verbs.SendWR{WRID: id, Opcode: verbs.OpBindMW, Flags: flags, Bind: verbs.Bind{MW: its(mw), RKey: key, Info: info}}
		_, err = p.QP.PostSend([]verbs.SendWR{wr})
	} else {
		key, err = p.QP.BindMW(its(mw), id, flags, info)
	}
	if err != nil {
		return 0, p.answers(err)
	}
	if w := mine[*window](p.d, mw); w != nil {
		if w.bound.Store(true); p.d.q.BindKeepsKey {
			key = w.born
		}
	}
	return key, nil
}
