package explore

import (
	"bytes"
	"cmp"
	"slices"
)

// Packet is a packet in a [Network]. From and To are places in the network, such as hosts.
type Packet struct {
	From, To int
	Bytes    []byte
}

// Network is a part of a machine: packets in transit between places. Packets of the same direction
// arrive in order, but for faults: a packet is lost, is repeated, or is delayed. Repetitions and
// delayed packets arrive at any time.
type Network struct {
	Faults int // that may still occur

	inOrder, late []Packet
}

// The kinds of the steps of a network. Deliver is no fault.
const (
	Deliver = "deliver"
	Lose    = "lose"
	Repeat  = "repeat"
	Delay   = "delay"
)

// Send sends a copy of a packet.
func (n *Network) Send(from, to int, b []byte) {
	n.inOrder = append(n.inOrder, Packet{from, to, bytes.Clone(b)})
	slices.SortStableFunc(n.inOrder, Packet.compareDirection)
}

func (p Packet) compareDirection(q Packet) int { return cmp.Or(p.From-q.From, p.To-q.To) }

// Empty reports whether no packet is in transit.
func (n *Network) Empty() bool { return len(n.inOrder)+len(n.late) == 0 }

// Packets returns all packets in transit, first those that arrive in order, of which there are
// inOrder. Machines with equal packets have equal networks.
func (n *Network) Packets() (all []Packet, inOrder int) {
	return slices.Concat(n.inOrder, n.late), len(n.inOrder)
}

// Enabled appends the steps of the network.
func (n *Network) Enabled(into []Step) []Step {
	all, inOrder := n.Packets()
	for i, p := range all {
		if i > 0 && i < inOrder && p.compareDirection(all[i-1]) == 0 {
			continue // not the first of its direction
		}
		into = append(into, Step{Kind: Deliver, A: int32(i)})
		if i < inOrder && n.Faults > 0 {
			into = append(into, Step{Kind: Lose, A: int32(i)}, Step{Kind: Repeat, A: int32(i)}, Step{Kind: Delay, A: int32(i)})
		}
	}
	return into
}

// Take takes a step that Enabled has returned. arrived is nil if no packet arrives, else the one that
// does.
func (n *Network) Take(s Step) (arrived *Packet) {
	list, i := &n.inOrder, int(s.A)
	if i >= len(n.inOrder) {
		list, i = &n.late, i-len(n.inOrder)
	}
	p := (*list)[i]
	if s.Kind != Repeat {
		*list = slices.Delete(*list, i, i+1)
	}
	switch s.Kind {
	case Deliver:
		return &p
	case Repeat, Delay:
		n.late = append(n.late, p)
		slices.SortFunc(n.late, func(a, b Packet) int { return cmp.Or(a.compareDirection(b), bytes.Compare(a.Bytes, b.Bytes)) })
	}
	n.Faults--
	return nil
}
