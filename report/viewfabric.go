package report

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// linkState returns how one direction of a cable is drawn, by its counters.
func linkState(l *Link) kit.State {
	switch {
	case l.Lost["link_down"] > 0 || l.Lost["partition"] > 0:
		return kit.Down
	case l.LostPackets() > 0:
		return kit.Lossy
	case l.Impaired || l.Duplicated+l.Reordered+l.Marked > 0:
		return kit.Impaired
	default:
		return kit.Fine
	}
}

// fabricPainter implements kit.Painter by the counters of a result.
type fabricPainter struct {
	links       map[[2]string][]*Link // by their ends
	ranks       map[string][]*Rank    // by host
	faultStates map[string]kit.State  // the worst state that a fault caused, by host or link
	used        [kit.Down + 1]bool    // states that occur in the drawing
	fewTitles   bool                  // omit titles of hosts and cables in the state kit.Fine
}

// newFabricPainter returns a painter of a result's fabric: it indexes the links by their ends, the
// ranks by host, and the states that faults cause by host or link. With many ranks it omits the
// titles (tooltips) of undisturbed parts, to keep the page small.
func newFabricPainter(r *Result) *fabricPainter {
	const maxRanksWithTitles = 24
	painter := &fabricPainter{links: map[[2]string][]*Link{}, ranks: map[string][]*Rank{}, faultStates: map[string]kit.State{}, fewTitles: len(r.Ranks) > maxRanksWithTitles}
	for i := range r.Links {
		link := &r.Links[i]
		ends := [2]string{link.From, link.To}
		painter.links[ends] = append(painter.links[ends], link)
	}
	for i := range r.Ranks {
		rank := &r.Ranks[i]
		painter.ranks[rank.Host] = append(painter.ranks[rank.Host], rank)
	}
	for _, f := range r.Faults {
		state := kit.Impaired
		if strings.HasSuffix(f.What, " down") { // even if no packet was lost
			state = kit.Down
		}
		for _, on := range f.On {
			painter.faultStates[on] = max(painter.faultStates[on], state)
		}
	}
	return painter
}

// portName returns "host0/rdma0" for the port of a host, and "switch0" for that of a switch.
func portName(p topology.Port) string {
	if p.NIC == "" {
		return p.Node
	}
	return p.Node + "/" + p.NIC
}

// Cable implements kit.Painter: it draws both directions of a cable as one line, with the number of
// lost packets, in the worst state of the two and of those that faults of its NICs cause.
func (f *fabricPainter) Cable(c *topology.Cable) kit.Part {
	a, b := portName(c.A), portName(c.B)
	var p kit.Part
	text := []string{a + " – " + b}
	lost := uint64(0)
	for _, ends := range [][2]string{{a, b}, {b, a}} {
		for _, link := range f.links[ends] {
			p.State = max(p.State, linkState(link))
			lost += link.LostPackets()
			text = append(text, directionTitle(link))
		}
	}
	if c.A.NIC != "" { // without a NIC, a is the name of a switch, whose faults are not the cable's
		p.State = max(p.State, f.faultStates[a])
	}
	if c.B.NIC != "" {
		p.State = max(p.State, f.faultStates[b])
	}
	if lost > 0 {
		p.Label = cli.SI(float64(lost), "") + " lost"
	}
	f.used[p.State] = true
	if !f.fewTitles || p.State != kit.Fine {
		p.Title = strings.Join(text, "\n")
	}
	return p
}

// directionTitle describes one direction of a link: packets, bytes and losses.
func directionTitle(l *Link) string {
	s := fmt.Sprintf("to %s: %s packets, %s", l.To, count(l.Packets), cli.Bytes(l.Bytes))
	if l.KernelCounted {
		s += " (counted by the kernel)"
	}
	for _, c := range l.Causes() {
		s += fmt.Sprintf(", %s %s", c.Name, count(c.Packets))
	}
	return s
}

// Host implements kit.Painter: it draws a host as down if a rank on it did not finish, and else in
// the state that faults caused.
func (f *fabricPainter) Host(h *topology.Host) kit.Part {
	p := kit.Part{State: f.faultStates[h.Name]}
	title := h.Name
	for _, r := range f.ranks[h.Name] {
		if r.State != stateFinished {
			p.State = kit.Down
		}
		title += fmt.Sprintf("\nrank %d: %s, %s in %s messages", r.Rank, rankState(r), cli.Bytes(r.Bytes), count(r.Messages))
	}
	if !f.fewTitles || p.State != kit.Fine {
		p.Title = title
	}
	f.used[p.State] = true
	return p
}

// legend explains the states that occur in the drawing.
func (f *fabricPainter) legend() []legendView {
	texts := map[kit.State]string{kit.Impaired: "disturbed, nothing lost", kit.Lossy: "lost packets", kit.Down: "cut off, or did not finish"}
	var out []legendView
	for s := kit.Impaired; s <= kit.Down; s++ {
		if f.used[s] {
			out = append(out, legendView{s.String(), texts[s]})
		}
	}
	return out
}

// fabricText describes the size of the fabric, and the links if all are equal.
func fabricText(t *topology.Topology) string {
	text := cli.Plural(len(t.Hosts), "host")
	tiers := map[int]int{} // number of switches by tier: 1 for leaves, 2 for spines
	for _, s := range t.Switches {
		tiers[s.Tier]++
	}
	switch {
	case len(t.Switches) == 0:
		text += " back to back"
	case len(tiers) == 2:
		text += fmt.Sprintf(", %d leaves, %s", tiers[1], cli.Plural(tiers[2], "spine"))
	case len(t.Switches) == 1:
		text += ", 1 switch"
	default:
		text += fmt.Sprintf(", %d switches", len(t.Switches))
	}
	if len(t.Cables) == 0 {
		return text
	}
	link := t.Cables[0].Link
	for i := range t.Cables {
		if t.Cables[i].Link != link {
			return text + ", links of several kinds"
		}
	}
	if link.RateBps > 0 {
		text += ", " + cli.BitRate(float64(link.RateBps))
	}
	if link.Latency > 0 {
		text += ", " + cli.Duration(link.Latency)
	}
	if link.MTU > 0 {
		text += fmt.Sprintf(", MTU %d", link.MTU)
	}
	return text
}
