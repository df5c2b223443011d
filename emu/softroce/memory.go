package softroce

import (
	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// protectionDomain is a verbs.PD.
type protectionDomain struct {
	object
	id core.PD
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (verbs.PD, error) {
	p := &protectionDomain{object: object{d: d}}
	err := d.control("alloc_pd", func() (err error) {
		p.id, err = d.nic.AllocPD()
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *protectionDomain) Close() error {
	return p.close("dealloc_pd", func() error { return p.d.nic.DeallocPD(p.id) })
}

// memoryRegion is a verbs.MR.
type memoryRegion struct {
	object
	r *core.Region
}

func (p *protectionDomain) RegMR(in verbs.MRInit) (verbs.MR, error) {
	m := &memoryRegion{object: object{d: p.d}}
	err := p.control("reg_mr", func() (err error) {
		m.r, err = p.d.nic.RegMR(p.id, core.Bytes(in.Buf), in.Addr, in.Access)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *memoryRegion) LKey() verbs.LKey { return verbs.LKey(m.r.Key) }
func (m *memoryRegion) RKey() verbs.RKey { return verbs.RKey(m.r.Key) }
func (m *memoryRegion) Addr() uint64     { return m.r.Addr }
func (m *memoryRegion) Len() int         { return int(m.r.Len) }
func (m *memoryRegion) Close() error {
	return m.close("dereg_mr", func() error { return m.d.nic.DeregMR(m.r) })
}

// memoryWindow is a verbs.MW. next is the key that the next bind of a type 1
// window gives it: binds may be queued, so it runs ahead of the window's own.
type memoryWindow struct {
	object
	w    *core.Window
	next verbs.RKey
}

func (p *protectionDomain) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	m := &memoryWindow{object: object{d: p.d}}
	err := p.control("alloc_mw", func() (err error) {
		if m.w, err = p.d.nic.AllocMW(p.id, typ); err == nil {
			m.next = verbs.RKey(m.w.Key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *memoryWindow) Type() verbs.MWType { return m.w.Type }

func (m *memoryWindow) RKey() (key verbs.RKey) {
	m.d.control("query_mw", func() error {
		key = verbs.RKey(m.w.Key)
		return nil
	})
	return key
}

func (m *memoryWindow) Close() error {
	return m.close("dealloc_mw", func() error {
		m.d.nic.DeallocMW(m.w)
		return nil
	})
}

// addressHandle is a verbs.AH.
type addressHandle struct {
	object
	a *engine.AH
}

func (p *protectionDomain) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	h := &addressHandle{object: object{d: p.d}}
	err := p.control("create_ah", func() (err error) {
		h.a, err = p.d.nic.CreateAH(p.id, attr)
		return err
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *addressHandle) Attr() verbs.AHAttr { return h.a.Attr }
func (h *addressHandle) Close() error {
	return h.close("destroy_ah", func() error {
		h.d.nic.DestroyAH(h.a)
		return nil
	})
}

// xrcDomain is a verbs.XRCD.
type xrcDomain struct {
	object
	x *engine.XRCD
}

// OpenXRCD makes an XRC domain.
func (d *Device) OpenXRCD() (verbs.XRCD, error) {
	x := &xrcDomain{object: object{d: d}}
	err := d.control("open_xrcd", func() (err error) {
		x.x, err = d.nic.OpenXRCD()
		return err
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

func (x *xrcDomain) Close() error {
	return x.close("close_xrcd", func() error { return x.d.nic.CloseXRCD(x.x) })
}
