package device

import (
	"bytes"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
)

// relaxedMemory is a memory region whose writes the driver places later, in any order. It is not a
// nic.Slicer, so that the engine does not write to it in place.
type relaxedMemory struct {
	nic.Memory
	placer                  drive.Placer
	pieces, atomicsOvertake bool
}

// pieceBytes is the size of a piece that is placed on its own, a cache line.
const pieceBytes = 64

// WriteAt implements nic.Memory: it passes a copy of b to the driver.
func (m relaxedMemory) WriteAt(b []byte, off uint64) error {
	if off > m.Len() || uint64(len(b)) > m.Len()-off {
		return nic.ErrMemory
	}
	data := bytes.Clone(b)
	for len(data) > 0 {
		n := len(data)
		if m.pieces {
			n = min(n, pieceBytes-int(off%pieceBytes))
		}
		piece, at := data[:n], off
		m.placer.Place(n, func() { _ = m.Memory.WriteAt(piece, at) }) // the range is valid
		data, off = data[n:], off+uint64(n)
	}
	return nil
}

// ReadAt implements nic.Memory. A device's reads see all of its earlier writes.
func (m relaxedMemory) ReadAt(p []byte, off uint64) error {
	m.placer.PlaceAll()
	return m.Memory.ReadAt(p, off)
}

// Update implements nic.Memory. Atomics are ordered after earlier writes, unless they overtake them.
func (m relaxedMemory) Update(off uint64, f func(uint64) uint64) (uint64, error) {
	if !m.atomicsOvertake {
		m.placer.PlaceAll()
	}
	return m.Memory.Update(off, f)
}

// memory returns the memory of a region: relaxed if the driver places writes.
func (d *Device) memory(b []byte) nic.Memory {
	if p, ok := d.drv.(drive.Placer); ok {
		if relaxed, pieces, atomics := p.Placement(); relaxed {
			return relaxedMemory{polledMemory{b}, p, pieces, atomics}
		}
	}
	return polledMemory{b}
}

// placeAll makes all writes visible, before the application gets a completion.
func (d *Device) placeAll() {
	if p, ok := d.drv.(drive.Placer); ok {
		p.PlaceAll()
	}
}
