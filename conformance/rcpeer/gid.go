package rcpeer

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// GIDIndex returns the index of the device's first address, as RoCEv2, in its GID table.
// Link-local and RoCEv1 entries often precede it.
func (p *Port) GIDIndex() uint8 {
	attr, err := p.Device.QueryPort(1)
	p.Must("a port that can be queried", err)
	for i := range attr.GIDs {
		if e, err := p.Device.QueryGID(1, i); err == nil && e.GID.Addr() == p.Local[0] && e.Type == verbs.GIDTypeRoCEv2 {
			return uint8(i)
		}
	}
	p.Fail(fmt.Sprintf("a GID of RoCEv2 for %v, an address of the device", p.Local[0]), "none")
	return 0
}
