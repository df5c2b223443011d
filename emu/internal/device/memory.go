package device

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// PD is a verbs.PD.
type PD struct {
	Object
	ID nic.PD
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (verbs.PD, error) {
	p := &PD{Object: Object{D: d}}
	err := d.Control("alloc_pd", func() (err error) {
		p.ID, err = d.base.AllocPD()
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Close removes the domain.
func (p *PD) Close() error {
	return p.Destroy("dealloc_pd", func() error { return p.D.base.DeallocPD(p.ID) })
}

// CreateAH makes an address handle, if the device has any.
func (p *PD) CreateAH(attr verbs.AHAttr) (h verbs.AH, err error) {
	if p.D.hooks.CreateAH == nil {
		return nil, p.D.opError("create_ah", fmt.Errorf("%w: the device has no datagrams", verbs.ErrNotSupported))
	}
	return p.D.hooks.CreateAH(p, attr)
}

// MR is a verbs.MR.
type MR struct {
	Object
	R *nic.Region
}

// RegMR registers memory.
func (p *PD) RegMR(in verbs.MRInit) (verbs.MR, error) {
	m := &MR{Object: Object{D: p.D}}
	err := p.Control("reg_mr", func() (err error) {
		m.R, err = p.D.base.RegMR(p.ID, polled{in.Buf}, in.Addr, in.Access)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// LKey names the region in work requests.
func (m *MR) LKey() verbs.LKey { return verbs.LKey(m.R.Key) }

// RKey names the region to peers.
func (m *MR) RKey() verbs.RKey { return verbs.RKey(m.R.Key) }

// Addr is the address of the first byte.
func (m *MR) Addr() uint64 { return m.R.Addr }

// Len is the length in bytes.
func (m *MR) Len() int { return int(m.R.Len) }

// Close deregisters the memory.
func (m *MR) Close() error {
	return m.Destroy("dereg_mr", func() error { return m.D.base.DeregMR(m.R) })
}

// MW is a verbs.MW. next is the key that the next bind of a type 1 window gives
// it: binds may be queued, so it runs ahead of the window's own.
type MW struct {
	Object
	W    *nic.Window
	next verbs.RKey
	wr   [1]verbs.SendWR // of the bind that is being posted
}

// AllocMW makes a memory window.
func (p *PD) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	m := &MW{Object: Object{D: p.D}}
	err := p.Control("alloc_mw", func() (err error) {
		if m.W, err = p.D.base.AllocMW(p.ID, typ); err == nil {
			m.next = verbs.RKey(m.W.Key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Type is the window's type.
func (m *MW) Type() verbs.MWType { return m.W.Type }

// RKey is the current key.
func (m *MW) RKey() (key verbs.RKey) {
	_ = m.D.Control("query_mw", func() error {
		key = verbs.RKey(m.W.Key)
		return nil
	})
	return key
}

// Close removes the window.
func (m *MW) Close() error {
	return m.Destroy("dealloc_mw", func() error {
		m.D.base.DeallocMW(m.W)
		return nil
	})
}

// XRCD is a verbs.XRCD.
type XRCD struct {
	Object
	X *nic.XRCD
}

// OpenXRCD makes an XRC domain. It is not a method of Device, for not every
// provider offers them.
func OpenXRCD(d *Device) (verbs.XRCD, error) {
	x := &XRCD{Object: Object{D: d}}
	err := d.Control("open_xrcd", func() (err error) {
		x.X, err = d.base.OpenXRCD()
		return err
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Close removes the domain.
func (x *XRCD) Close() error {
	return x.Destroy("close_xrcd", func() error { return x.D.base.CloseXRCD(x.X) })
}
