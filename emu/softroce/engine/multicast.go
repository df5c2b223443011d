package engine

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Attach attaches a UD QP to a multicast group.
func (n *NIC) Attach(q *QP, group netip.Addr) error {
	members := n.mcast[group]
	switch {
	case q.typ != verbs.QPTypeUD || !group.IsMulticast():
		return nic.OpError("attach_mcast", q.name(), "%w: %v to group %v", verbs.ErrInvalid, q.typ, group)
	case n.qps.At(q.num) != q:
		return nic.OpError("attach_mcast", q.name(), "%w: destroyed", verbs.ErrInvalid)
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

// Detach detaches a QP from a multicast group.
func (n *NIC) Detach(q *QP, group netip.Addr) error {
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
