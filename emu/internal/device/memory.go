package device

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// PD implements verbs.PD.
type PD struct {
	Object
	ID nic.PD
}

// AllocPD allocates a protection domain.
func (d *Device) AllocPD() (verbs.PD, error) {
	p := &PD{Object: Object{D: d}}
	return HandleOrNil[verbs.PD](p, d.Control("alloc_pd", func() (err error) {
		p.ID, err = d.base.AllocPD()
		return err
	}))
}

// Close deallocates the domain.
func (p *PD) Close() error {
	return p.Destroy("dealloc_pd", func() error { return p.D.base.DeallocPD(p.ID) })
}

// CreateAH creates an address handle, if the provider supports them.
func (p *PD) CreateAH(attr verbs.AHAttr) (h verbs.AH, err error) {
	if p.D.hooks.CreateAH == nil {
		return nil, p.D.opError("create_ah", fmt.Errorf("%w: the device has no datagrams", verbs.ErrNotSupported))
	}
	return p.D.hooks.CreateAH(p, attr)
}

// MR implements verbs.MR.
type MR struct {
	Object
	R *nic.Region
}

// RegMR registers memory.
func (p *PD) RegMR(in verbs.MRInit) (verbs.MR, error) {
	m := &MR{Object: Object{D: p.D}}
	p.D.spendBytes(drive.Registration, len(in.Buf))
	return HandleOrNil[verbs.MR](m, p.Control("reg_mr", func() (err error) {
		m.R, err = p.D.base.RegMR(p.ID, p.D.memory(in.Buf), in.Addr, in.Access)
		return err
	}))
}

// LKey is the local key.
func (m *MR) LKey() verbs.LKey { return verbs.LKey(m.R.Key) }

// RKey is the remote key.
func (m *MR) RKey() verbs.RKey { return verbs.RKey(m.R.Key) }

// Addr is the address of the first byte.
func (m *MR) Addr() uint64 { return m.R.Addr }

// Len is the length in bytes.
func (m *MR) Len() int { return int(m.R.Len) }

// Close deregisters the memory.
func (m *MR) Close() error {
	m.D.spendBytes(drive.Deregistration, m.Len())
	return m.Destroy("dereg_mr", func() error { return m.D.base.DeregMR(m.R) })
}

// MW implements verbs.MW.
type MW struct {
	Object
	W       *nic.Window
	lastKey verbs.RKey      // key of the last posted bind of a type 1 window, which may not have run yet
	bindWR  [1]verbs.SendWR // of the bind that is being posted
}

// AllocMW allocates a memory window.
func (p *PD) AllocMW(typ verbs.MWType) (verbs.MW, error) {
	m := &MW{Object: Object{D: p.D}}
	return HandleOrNil[verbs.MW](m, p.Control("alloc_mw", func() (err error) {
		if m.W, err = p.D.base.AllocMW(p.ID, typ); err == nil {
			m.lastKey = verbs.RKey(m.W.Key)
		}
		return err
	}))
}

// Type is the window's type.
func (m *MW) Type() verbs.MWType { return m.W.Type }

// RKey is the current key; 0 if the window or the device is closed.
func (m *MW) RKey() (key verbs.RKey) {
	_ = m.D.Control("query_mw", func() error {
		key = verbs.RKey(m.W.Key)
		return nil
	})
	return key
}

// Close deallocates the window.
func (m *MW) Close() error {
	return m.Destroy("dealloc_mw", func() error {
		m.D.base.DeallocMW(m.W)
		return nil
	})
}

// XRCD implements verbs.XRCD.
type XRCD struct {
	Object
	X *nic.XRCD
}

// OpenXRCD implements verbs.Context. It fails if the protocol has no XRC.
func (d *Device) OpenXRCD() (verbs.XRCD, error) {
	const op = "open_xrcd"
	if !d.hooks.XRC {
		return nil, d.Unsupported(op, "XRC")
	}
	x := &XRCD{Object: Object{D: d}}
	return HandleOrNil[verbs.XRCD](x, d.Control(op, func() (err error) {
		x.X, err = d.base.OpenXRCD()
		return err
	}))
}

// Close closes the domain.
func (x *XRCD) Close() error {
	return x.Destroy("close_xrcd", func() error { return x.D.base.CloseXRCD(x.X) })
}
