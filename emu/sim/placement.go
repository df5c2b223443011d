package sim

import (
	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/mono"
)

var _ drive.Placer = (*Driver)(nil)

// placement is a write to memory that is not visible yet. It is a Handler, and an entity of its own:
// with Config.Reorder, placements come in any order.
type placement struct {
	driver *Driver
	write  func()
}

// RelaxedPlacement implements drive.Placer.
func (d *Driver) RelaxedPlacement() bool { return d.Port.cfg.RelaxedPlacement }

// Place implements drive.Placer: the write is an event that is due now.
func (d *Driver) Place(write func()) {
	p := &placement{d, write}
	d.placements = append(d.placements, p)
	d.world.At(d.world.now, p, 0)
}

// PlaceAll implements drive.Placer.
func (d *Driver) PlaceAll() {
	for len(d.placements) > 0 {
		d.placements[0].HandleEvent(d.world.now, 0)
	}
}

// HandleEvent implements Handler. It does nothing if PlaceAll has made the write visible.
func (p *placement) HandleEvent(mono.Time, uint64) {
	if p.write != nil {
		p.write()
		p.write = nil
		p.driver.placements = remove(p.driver.placements, p)
	}
}
