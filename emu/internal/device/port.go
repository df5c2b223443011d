package device

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/portwatch"
	"github.com/fabrictest/fabrictest/verbs"
)

// WatchPort has the observer told, with the lock held, what the kernel knows of the
// interface that owns the addresses, in the network namespace of the caller's
// thread: for devices on sockets, which do not say. It ends when the device is shut.
//
// Where the kernel tells nobody (a sandbox may forbid it), the port stays as it is.
func (d *Device) WatchPort(addrs []netip.Addr, o link.PortObserver) {
	w, err := portwatch.Open(addrs)
	if err != nil {
		return
	}
	d.watch = w
	w.Start(&entering{d, o})
}

// entering enters the device for an observer.
type entering struct {
	d *Device
	o link.PortObserver
}

// LinkChanged implements link.PortObserver.
func (e *entering) LinkChanged(up bool) { e.enter(func() { e.o.LinkChanged(up) }) }

// AddrChanged implements link.PortObserver.
func (e *entering) AddrChanged(a netip.Addr, present bool) {
	e.enter(func() { e.o.AddrChanged(a, present) })
}

func (e *entering) enter(tell func()) {
	e.d.drv.Lock(drive.CallWait)
	defer e.d.drv.Unlock()
	if e.d.closed {
		return
	}
	tell()
	e.d.drv.Pump()
}

// Addresses are those of a device's port, some of which may have been taken away.
// Each has a place of its own in the GID table, which it leaves empty.
type PortAddrs struct {
	all     []netip.Addr
	missing []bool
}

// NewAddresses returns addresses that are all there.
func NewPortAddrs(all []netip.Addr) PortAddrs {
	return PortAddrs{all: all, missing: make([]bool, len(all))}
}

// Set notes that an address is there, or not, and reports whether that is news.
func (a *PortAddrs) SetPresent(addr netip.Addr, present bool) (changed bool) {
	for i, own := range a.all {
		if plain(own) == plain(addr) && a.missing[i] == present {
			a.missing[i] = !present
			changed = true
		}
	}
	return changed
}

// Has reports whether the port has entry i of the table.
func (a *PortAddrs) IsPresent(i int) bool { return !a.missing[i] }

// Present lists the addresses that are there.
func (a *PortAddrs) Present() (there []netip.Addr) {
	for i, own := range a.all {
		if !a.missing[i] {
			there = append(there, own)
		}
	}
	return there
}

// Table is a GID table without what is missing; where there are more entries than
// addresses the others stay as they are.
func (a *PortAddrs) FilterGIDs(full []verbs.GIDEntry) []verbs.GIDEntry {
	table := make([]verbs.GIDEntry, len(full))
	copy(table, full)
	for i, missing := range a.missing {
		if missing {
			table[i] = verbs.GIDEntry{Index: full[i].Index}
		}
	}
	return table
}

// GIDChange is the event of a table that has changed.
func GIDChangeEvent() nic.Event { return nic.Event{Type: verbs.EventGIDChange, Port: 1} }

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
