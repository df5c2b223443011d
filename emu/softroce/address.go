package softroce

import (
	"github.com/fabrictest/fabrictest/emu/internal/device"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/verbs"
)

// addressHandle implements verbs.AH.
type addressHandle struct {
	device.Object
	nic *engine.NIC
	a   *engine.AH
}

// createAH creates an address handle for the PD p. It is CreateAH of the device's Hooks.
func (d *Device) createAH(p *device.PD, attr verbs.AHAttr) (verbs.AH, error) {
	h := &addressHandle{Object: device.Object{D: &d.shared}, nic: d.nic}
	return device.HandleOrNil[verbs.AH](h, p.Control("create_ah", func() (err error) {
		h.a, err = d.nic.CreateAH(p.ID, attr)
		return err
	}))
}

func (h *addressHandle) Attr() verbs.AHAttr { return h.a.Attr }

// Close implements verbs.AH: it destroys the address handle.
func (h *addressHandle) Close() error {
	return h.Destroy("destroy_ah", func() error {
		h.nic.DestroyAH(h.a)
		return nil
	})
}
