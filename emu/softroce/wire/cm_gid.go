package wire

import "net/netip"

// GID is a port address. On RoCEv2 it is an IP address, IPv4 in its
// IPv4-mapped form.
type GID [16]byte

// GIDOf returns the GID of an IP address; the zero GID for the zero Addr.
func GIDOf(a netip.Addr) GID {
	if !a.IsValid() {
		return GID{}
	}
	return a.As16()
}

// Addr returns the IP address of g.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String prints g as an IP address.
func (g GID) String() string { return g.Addr().String() }
