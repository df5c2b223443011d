package engine

import (
	"net/netip"
	"slices"

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
	case q.Reliable:
		return q.OpError("attach_mcast", verbs.ErrInvalid, "the QP is reliable, and multicast needs a UD QP")
	case !isGroup(group):
		return q.OpError("attach_mcast", verbs.ErrInvalid, "%v is not a multicast group", group)
	case n.qps.At(q.QPN) != q:
		return q.OpError("attach_mcast", verbs.ErrInvalid, "the QP was destroyed")
	case slices.Contains(members, q):
		return nil
	case len(members) == 0 && len(n.mcast) >= n.cfg.Limits.McastGroups:
		return q.OpError("attach_mcast", verbs.ErrNoMemory, "%d groups", len(n.mcast))
	case len(members) >= n.cfg.Limits.McastQPs:
		return q.OpError("attach_mcast", verbs.ErrNoMemory, "%d QPs in the group", len(members))
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
		return q.OpError("detach_mcast", verbs.ErrInvalid, "not attached to %v", group)
	}
	q.groups--
	if members = slices.Delete(members, i, i+1); len(members) == 0 {
		delete(n.mcast, group)
	} else {
		n.mcast[group] = members
	}
	return nil
}
