package rcpeer

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// SourceIndex is where the device's GID table has its first address, for RoCEv2. On many
// devices other entries are before it: the link-local address, and those of RoCEv1.
func (p *Port) SourceIndex() uint8 {
	attr, err := p.Device.QueryPort(1)
	p.Do("a port that can be queried", err)
	for i := range attr.GIDs {
		if e, err := p.Device.QueryGID(1, i); err == nil && e.GID.Addr() == p.Local[0] && e.Type == verbs.GIDTypeRoCEv2 {
			return uint8(i)
		}
	}
	p.Fail(fmt.Sprintf("a GID of RoCEv2 for %v, an address of the device", p.Local[0]), "none")
	return 0
}
