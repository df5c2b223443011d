package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/mono"
)

var _ drive.Placer = (*Driver)(nil)

// Placement says in which order the writes of a NIC to memory become visible (see Config.Reorder).
type Placement uint8

// The placements, from the strongest to the weakest.
const (
	// Strict: in their order, before they are acknowledged.
	Strict Placement = iota
	// Relaxed: in any order, and later than they are acknowledged, as with relaxed ordering on PCIe. They
	// are visible when the host has polled a later completion, and to READs and atomics.
	Relaxed
	// Weakest: as Relaxed, and a write is placed in pieces of 64 bytes, in any order, and atomics overtake
	// writes, as those on PCIe do with relaxed ordering.
	Weakest
)

// placementNames are the texts of placements.
var placementNames = []string{"strict", "relaxed", "weakest"}

// Placements returns the names of all placements, the strongest first.
func Placements() []string { return slices.Clone(placementNames) }

func (p Placement) String() string { return placementNames[p] }

// MarshalText implements encoding.TextMarshaler.
func (p Placement) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Placement) UnmarshalText(text []byte) error {
	i := slices.Index(placementNames, string(text))
	if i < 0 {
		return fmt.Errorf("placement %q: give one of %s", text, strings.Join(placementNames, ", "))
	}
	*p = Placement(i)
	return nil
}

// placement is a write to memory that is not visible yet. It is a Handler, and an entity of its own:
// with Config.Reorder, placements come in any order.
type placement struct {
	driver *Driver
	bytes  int
	write  func()
}

// Placement implements drive.Placer.
func (d *Driver) Placement() (relaxed, pieces, atomicsOvertake bool) {
	p := d.Port.cfg.Placement
	return p >= Relaxed, p >= Weakest, p >= Weakest
}

// Place implements drive.Placer: the write is an event that is due now.
func (d *Driver) Place(n int, write func()) {
	p := &placement{d, n, write}
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
