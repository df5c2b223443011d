package mpihost

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// openNIC opens a NIC of the rank: a device of the kernel, or an emulated NIC of the opener's
// provider.
func (p *Process) openNIC(opener nics.Opener, n NICJob) (transport.NIC, error) {
	if n.Device {
		return openDevice(ibv.Provider{}, n)
	}
	name := fmt.Sprintf("%s/%s", p.conn.Host(), n.Name)
	d, err := opener.OnSockets(nics.NICConfig{Name: name, Addr: n.Addr, Cable: nics.InheritedCable(n.CableFD)})
	return transport.NIC{Device: d, Addr: n.Addr}, err
}

// openDevice opens a device of a provider, which uses the GID of the address n.Addr. An iWARP device
// has no such GID.
func openDevice(from verbs.Provider, n NICJob) (transport.NIC, error) {
	d, err := from.Open(n.Name)
	if err != nil {
		return transport.NIC{}, err
	}
	nic := transport.NIC{Device: d, Addr: n.Addr}
	if d.Info().Transport != verbs.TransportIWARP {
		nic.GIDIndex, err = gidIndex(d, n.Addr)
	}
	if err != nil {
		return transport.NIC{}, errors.Join(err, d.Close())
	}
	return nic, nil
}

// gidIndex returns the index of the RoCEv2 entry of an address in the GID table of a device.
func gidIndex(d verbs.Context, addr netip.Addr) (uint8, error) {
	const port, maxIndex = 1, 255 // of an address vector, which has 8 bits for it
	attr, err := d.QueryPort(port)
	if err != nil {
		return 0, err
	}
	for i := range min(attr.GIDs, maxIndex+1) {
		e, err := d.QueryGID(port, i)
		switch {
		case errors.Is(err, verbs.ErrNotFound): // a free entry
		case err != nil:
			return 0, err
		case e.Type == verbs.GIDTypeRoCEv2 && e.GID.Addr() == addr:
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%w: no RoCEv2 entry of the GID table has the address", verbs.ErrNotFound)
}
