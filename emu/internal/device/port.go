package device

import (
	"errors"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// WatchPort reports link and address changes of the interface with these addresses to the
// observer, until Shutdown. It calls the observer with the device's lock held. The interface
// is in the network namespace of the caller's thread.
//
// If the kernel refuses (a sandbox may forbid rtnetlink), the port never changes.
func (d *Device) WatchPort(addrs []netip.Addr, o link.PortObserver) {
	w, err := openPortWatch(addrs)
	if err != nil {
		return
	}
	d.watch = w
	w.Start(&lockingObserver{d, o})
}

// lockingObserver calls an observer with the device locked.
type lockingObserver struct {
	device   *Device
	observer link.PortObserver
}

// LinkChanged implements link.PortObserver.
func (o *lockingObserver) LinkChanged(up bool) { o.withLock(func() { o.observer.LinkChanged(up) }) }

// AddrChanged implements link.PortObserver.
func (o *lockingObserver) AddrChanged(a netip.Addr, present bool) {
	o.withLock(func() { o.observer.AddrChanged(a, present) })
}

// withLock calls f with the device's lock held, and sends the packets that f caused. It does
// nothing if the device is closed.
func (o *lockingObserver) withLock(f func()) {
	o.device.drv.Lock(drive.CallWait)
	defer o.device.drv.Unlock()
	if o.device.closed {
		return
	}
	f()
	o.device.drv.Pump()
}

// PortAddrs are the addresses of a port. Some may be removed from the interface for a
// while; their entries in the GID table are then empty.
type PortAddrs struct {
	all     []netip.Addr
	missing []bool
}

// NewPortAddrs returns the addresses of a port whose interface has all of them.
func NewPortAddrs(all []netip.Addr) PortAddrs {
	return PortAddrs{all: all, missing: make([]bool, len(all))}
}

// SetPresent records whether the interface has an address of the port. It returns true if that
// changed.
func (a *PortAddrs) SetPresent(addr netip.Addr, present bool) (changed bool) {
	for i, ofPort := range a.all {
		if unmapAddr(ofPort) == unmapAddr(addr) && a.missing[i] == present {
			a.missing[i] = !present
			changed = true
		}
	}
	return changed
}

// GIDs returns the GID table of an iWARP port: an entry for each address, which is empty while the
// interface lacks the address. Linux reports GIDs of iWARP with the type IB, too.
func (a *PortAddrs) GIDs() []verbs.GIDEntry {
	table := make([]verbs.GIDEntry, len(a.all))
	for i, addr := range a.all {
		table[i] = verbs.GIDEntry{GID: verbs.GIDFrom(addr), Index: i, Type: verbs.GIDTypeIB}
	}
	return a.FilterGIDs(table)
}

// Present returns the addresses of the port that its interface has.
func (a *PortAddrs) Present() (present []netip.Addr) {
	for i, addr := range a.all {
		if !a.missing[i] {
			present = append(present, addr)
		}
	}
	return present
}

// FilterGIDs returns a copy of a GID table in which the entries of addresses that the interface
// lacks are empty. Entry i belongs to address i of the port; entries after the last address are
// kept.
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

// GIDChangeEvent returns the asynchronous event IBV_EVENT_GID_CHANGE of port 1.
func GIDChangeEvent() nic.Event { return nic.Event{Type: verbs.EventGIDChange, Port: 1} }

// GUIDFromAddr derives a GUID from an address: the locally administered bit is set in its first
// octet, and the octets of the address are combined by XOR into the other seven.
func GUIDFromAddr(a netip.Addr) uint64 {
	guid := uint64(0x02) << 56
	for i, b := range a.As16() {
		guid ^= uint64(b) << (8 * (uint(15-i) % 7))
	}
	return guid
}

// ErrNoAddress is the error of a configuration without addresses.
var ErrNoAddress = errors.New("a device needs an address: set Config.Addrs")

// unmapAddr returns a without zone, and as IPv4 if it is mapped into IPv6.
func unmapAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
