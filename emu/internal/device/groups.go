package device

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Groups are the multicast groups that a queue pair is a member of: in the NIC,
// and its port in the network.
type McastGroups struct{ in map[netip.Addr]bool }

// Attach makes the queue pair whose handle is o a member. attach and detach do so
// in the NIC.
func (g *McastGroups) Attach(o *Object, l link.PacketLink, group verbs.GID, attach, detach func(netip.Addr) error) error {
	const op = "attach_mcast"
	addr := group.Addr()
	return o.Control(op, func() error {
		net, err := o.groupLink(op, l)
		if err != nil || g.in[addr] {
			return err
		}
		if err := attach(addr); err != nil {
			return err
		}
		if err := net.Join(addr); err != nil {
			_ = detach(addr) // attached just now
			return o.D.opError(op, err)
		}
		if g.in == nil {
			g.in = map[netip.Addr]bool{}
		}
		g.in[addr] = true
		return nil
	})
}

// Detach undoes Attach, all or nothing.
func (g *McastGroups) Detach(o *Object, l link.PacketLink, group verbs.GID, detach func(netip.Addr) error) error {
	const op = "detach_mcast"
	addr := group.Addr()
	return o.Control(op, func() error {
		net, err := o.groupLink(op, l)
		if err != nil {
			return err
		}
		if g.in[addr] {
			if err := net.Leave(addr); err != nil {
				return o.D.opError(op, err)
			}
			delete(g.in, addr)
		}
		return detach(addr)
	})
}

func (o *Object) groupLink(op string, l link.PacketLink) (link.GroupLink, error) {
	net, ok := l.(link.GroupLink)
	if !ok {
		return nil, o.D.opError(op, fmt.Errorf("%w: the device's link has no multicast groups", verbs.ErrNotSupported))
	}
	return net, nil
}
