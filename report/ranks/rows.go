package ranks

import (
	"fmt"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Row is a statistic of each rank.
type Row struct {
	Group string // heading
	Name  string // indented by two spaces: a part of the row above
	Kind  RowKind
	Of    func(*Stats) uint64
}

// RowKind is the kind of a statistic.
type RowKind uint8

// Kinds of statistics.
const (
	Count RowKind = iota
	Bytes
	Peak // a maximum, which is not summed over ranks
)

// Show formats a value of the row.
func (r *Row) Show(v uint64) string {
	if r.Kind == Bytes {
		return units.Bytes(v)
	}
	return units.Count(v, ",")
}

// Groups of statistics.
const (
	ofMessages     = "Messages"
	ofSpeculation  = "Speculation"
	ofWindows      = "Windows"
	ofPackets      = "Packets"
	ofConnections  = "Connections"
	ofRegistration = "Registration and reuse"
	ofMemory       = "Communication memory"
)

// Rows returns the statistics in the order of the tables.
func Rows() []Row {
	rows := []Row{
		{ofMessages, "messages sent eagerly", Count, func(s *Stats) uint64 { return s.P2P.Sent[p2p.Eager].Messages }},
		{ofMessages, "  their data", Bytes, func(s *Stats) uint64 { return s.P2P.Sent[p2p.Eager].Bytes }},
		{ofMessages, "messages sent by rendezvous", Count, func(s *Stats) uint64 { return s.P2P.Sent[p2p.Rendezvous].Messages }},
		{ofMessages, "  their data", Bytes, func(s *Stats) uint64 { return s.P2P.Sent[p2p.Rendezvous].Bytes }},
		{ofMessages, "  small, for want of room", Count, func(s *Stats) uint64 { return s.P2P.FellBack }},
		{ofMessages, "came unexpectedly", Count, func(s *Stats) uint64 { return s.P2P.Unexpected }},
		{ofMessages, "  their data", Bytes, func(s *Stats) uint64 { return s.P2P.UnexpectedBytes }},
		{ofMessages, "  most at once", Peak, func(s *Stats) uint64 { return uint64(s.P2P.MaxUnexpected) }},
		{ofMessages, "receives posted, most at once", Peak, func(s *Stats) uint64 { return uint64(s.P2P.MaxPosted) }},
		{ofMessages, "ready sends without a receive", Count, func(s *Stats) uint64 { return s.P2P.NotReady }},
		{ofMessages, "never received", Count, func(s *Stats) uint64 { return s.NeverReceived }},
		{ofSpeculation, "RTRs that came", Count, func(s *Stats) uint64 { return s.P2P.RTRsCame }},
		{ofSpeculation, "  were used", Count, func(s *Stats) uint64 { return s.P2P.RTRsUsed }},
		{ofSpeculation, "  were dropped", Count, func(s *Stats) uint64 { return s.P2P.RTRsDropped }},
		{ofSpeculation, "    an RTS had crossed them", Count, func(s *Stats) uint64 { return s.P2P.Crossed }},
		{ofSpeculation, "  were mispredicted", Count, func(s *Stats) uint64 { return s.P2P.Mispredicted }},
		{ofSpeculation, "early calls of progress", Count, func(s *Stats) uint64 { return s.P2P.EarlyProgress }},
		{ofSpeculation, "speculation stopped", Count, func(s *Stats) uint64 { return s.P2P.SpeculationStopped }},
		{ofSpeculation, "  resumed", Count, func(s *Stats) uint64 { return s.P2P.SpeculationResumed }},
		{ofWindows, "puts", Count, func(s *Stats) uint64 { return s.Window.Puts }},
		{ofWindows, "  their data", Bytes, func(s *Stats) uint64 { return s.Window.PutBytes }},
		{ofWindows, "gets", Count, func(s *Stats) uint64 { return s.Window.Gets }},
		{ofWindows, "  their data", Bytes, func(s *Stats) uint64 { return s.Window.GetBytes }},
		{ofWindows, "accumulates", Count, func(s *Stats) uint64 { return s.Window.Accumulates }},
		{ofWindows, "atomics of NICs", Count, func(s *Stats) uint64 { return s.Window.Atomics }},
		{ofWindows, "locks that others waited for", Count, func(s *Stats) uint64 { return s.Window.LocksWaited }},
	}
	for w := range len(carrier.Stats{}.Packets) {
		rows = append(rows, Row{ofPackets, "packets by " + carrier.Transport(w).String(), Count, func(s *Stats) uint64 { return s.Carrier.Packets[w] }})
	}
	for r := range len(carrier.Stats{}.ByRail) {
		rows = append(rows, Row{ofPackets, fmt.Sprintf("data by rail %d", r), Bytes, func(s *Stats) uint64 { return s.Carrier.ByRail[r] }})
	}
	rows = append(rows,
		Row{ofPackets, "words that shared a packet", Count, func(s *Stats) uint64 { return s.Carrier.Coalesced }},
		Row{ofPackets, "packets of data alone", Count, func(s *Stats) uint64 { return s.Carrier.Headerless }},
		Row{ofPackets, "packets that only acknowledge", Count, func(s *Stats) uint64 { return s.Carrier.AckOnly }},
		Row{ofPackets, "packets sent again", Count, func(s *Stats) uint64 { return s.Carrier.Retransmitted }},
		Row{ofPackets, "packets that came again", Count, func(s *Stats) uint64 { return s.Carrier.Duplicates }},
		Row{ofPackets, "packets before their turn", Count, func(s *Stats) uint64 { return s.Carrier.OutOfOrder }},
		Row{ofPackets, "waited for room", Count, func(s *Stats) uint64 { return s.Carrier.Queued }},
		Row{ofPackets, "data written", Bytes, func(s *Stats) uint64 { return s.Carrier.WrittenBytes }},
		Row{ofPackets, "data read", Bytes, func(s *Stats) uint64 { return s.Carrier.ReadBytes }},
		Row{ofConnections, "connections, at most", Peak, func(s *Stats) uint64 { return uint64(s.Carrier.MaxConnections) }},
		Row{ofConnections, "  made", Count, func(s *Stats) uint64 { return s.Carrier.ConnectionsOpened }},
		Row{ofConnections, "  given back", Count, func(s *Stats) uint64 { return s.Carrier.ConnectionsClosed }},
		Row{ofConnections, "  refused by peers", Count, func(s *Stats) uint64 { return s.Carrier.ConnectionsRefused }},
		Row{ofConnections, "rings that peers write to", Peak, func(s *Stats) uint64 { return uint64(s.Carrier.Rings) }},
		Row{ofConnections, "shared receives ran low", Count, func(s *Stats) uint64 { return s.Carrier.LowWatermark }},
		Row{ofConnections, "rails lost", Count, func(s *Stats) uint64 { return uint64(s.Carrier.RailsLost) }},
		Row{ofRegistration, "registrations", Count, func(s *Stats) uint64 { return s.Carrier.Registrations.Misses }},
		Row{ofRegistration, "  found again", Count, func(s *Stats) uint64 { return s.Carrier.Registrations.Hits }},
		Row{ofRegistration, "  given up for others", Count, func(s *Stats) uint64 { return s.Carrier.Registrations.Evictions }},
		Row{ofRegistration, "  bytes, at most", Bytes, func(s *Stats) uint64 { return uint64(s.Carrier.Registrations.MaxBytes) }},
		Row{ofRegistration, "small buffers looked up", Count, func(s *Stats) uint64 { return s.Carrier.Reuse.Uses }},
		Row{ofRegistration, "  used often: not copied", Count, func(s *Stats) uint64 { return s.Carrier.Reuse.Frequent }},
		Row{ofRegistration, "packets gathered from there", Count, func(s *Stats) uint64 { return s.Carrier.Gathered }},
		Row{ofRegistration, "puts and gets from there", Count, func(s *Stats) uint64 { return s.Carrier.ZeroCopy }},
	)
	for m := range len(memory.Usage{}.Max) {
		rows = append(rows, Row{ofMemory, "memory of " + memory.Kind(m).String(), Bytes, func(s *Stats) uint64 { return uint64(s.Carrier.Memory.Max[m]) }})
	}
	return rows
}

// Total has the sum, minimum and maximum of a row over all ranks.
type Total struct {
	Row
	Sum, Least, Most uint64
}

// Shown formats the sum; empty for statistics that are not summed.
func (t *Total) Shown() string {
	if t.Kind == Peak {
		return ""
	}
	return t.Show(t.Sum)
}

// Totals returns the totals of the rows. It omits rows that are zero for all ranks.
func Totals(all []*Stats) (totals []Total) {
	for _, row := range Rows() {
		t := Total{Row: row, Least: ^uint64(0)}
		for _, s := range all {
			v := row.Of(s)
			t.Sum, t.Least, t.Most = t.Sum+v, min(t.Least, v), max(t.Most, v)
		}
		if t.Sum > 0 {
			totals = append(totals, t)
		}
	}
	return totals
}
