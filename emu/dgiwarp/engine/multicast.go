package engine

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// limitedBroadcast is the IPv4 broadcast address.
var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isGroup reports whether an address is multicast or broadcast.
func isGroup(a netip.Addr) bool { return a.IsMulticast() || a == limitedBroadcast }

// Attach makes a UD QP receive packets to a multicast group, or to 255.255.255.255.
func (n *NIC) Attach(q *QP, group netip.Addr) error {
	group = group.Unmap()
	members := n.mcast[group]
	switch {
	case q.reliable || !isGroup(group):
		return nic.OpError("attach_mcast", q.name(), "%w: to group %v, reliable %v", verbs.ErrInvalid, group, q.reliable)
	case n.qps.At(q.num) != q:
		return nic.OpError("attach_mcast", q.name(), "%w: it is gone", verbs.ErrInvalid)
	case slices.Contains(members, q):
		return nil
	case len(members) == 0 && len(n.mcast) >= n.cfg.Limits.McastGroups:
		return nic.OpError("attach_mcast", q.name(), "%w: %d groups", verbs.ErrNoMemory, len(n.mcast))
	case len(members) >= n.cfg.Limits.McastQPs:
		return nic.OpError("attach_mcast", q.name(), "%w: %d QPs in the group", verbs.ErrNoMemory, len(members))
	}
	n.mcast[group] = append(members, q)
	q.groups++
	return nil
}

// Detach undoes Attach.
func (n *NIC) Detach(q *QP, group netip.Addr) error {
	group = group.Unmap()
	members := n.mcast[group]
	i := slices.Index(members, q)
	if i < 0 {
		return nic.OpError("detach_mcast", q.name(), "%w: not attached to %v", verbs.ErrInvalid, group)
	}
	q.groups--
	if members = slices.Delete(members, i, i+1); len(members) == 0 {
		delete(n.mcast, group)
	} else {
		n.mcast[group] = members
	}
	return nil
}
