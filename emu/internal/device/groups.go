package device

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// McastGroups are the multicast groups that a queue pair is attached to, and that the link has
// joined for it.
type McastGroups struct{ joined map[netip.Addr]bool }

// Attach attaches queue pair o to a multicast group: it calls attach, which attaches o in the NIC,
// and joins the group on link l. If the join fails, it calls detach. It does nothing if o is
// attached already.
func (g *McastGroups) Attach(o *Object, l link.PacketLink, group verbs.GID, attach, detach func(netip.Addr) error) error {
	const op = "attach_mcast"
	addr := group.Addr()
	return o.Control(op, func() error {
		net, err := o.groupLink(op, l)
		if err != nil || g.joined[addr] {
			return err
		}
		if err := attach(addr); err != nil {
			return err
		}
		if err := net.Join(addr); err != nil {
			_ = detach(addr) // cannot fail: attached just now
			return o.D.opError(op, err)
		}
		if g.joined == nil {
			g.joined = map[netip.Addr]bool{}
		}
		g.joined[addr] = true
		return nil
	})
}

// Detach undoes Attach for a queue pair: it leaves the group on link l, and calls detach, which
// removes the group from the engine. If leaving fails, detach is not called. If detach fails, the
// group has been left, and another Detach only calls detach.
func (g *McastGroups) Detach(o *Object, l link.PacketLink, group verbs.GID, detach func(netip.Addr) error) error {
	const op = "detach_mcast"
	addr := group.Addr()
	return o.Control(op, func() error {
		net, err := o.groupLink(op, l)
		if err != nil {
			return err
		}
		if g.joined[addr] {
			if err := net.Leave(addr); err != nil {
				return o.D.opError(op, err)
			}
			delete(g.joined, addr)
		}
		return detach(addr)
	})
}

// groupLink returns l as a link with multicast groups, or ErrNotSupported if it has none.
func (o *Object) groupLink(op string, l link.PacketLink) (link.GroupLink, error) {
	net, ok := l.(link.GroupLink)
	if !ok {
		return nil, o.D.opError(op, fmt.Errorf("%w: the device's link has no multicast groups", verbs.ErrNotSupported))
	}
	return net, nil
}
