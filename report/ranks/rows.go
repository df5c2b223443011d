package ranks

import (
	"fmt"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// Row is a statistic of each rank.
type Row struct {
	Group string // heading
	Name  string // indented by two spaces: a part of the row above
	Kind  RowKind
	Path  string // of the value in the statistics of a rank
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
		return textfmt.Bytes(v)
	}
	return textfmt.Count(v, ",")
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
		{ofMessages, "messages sent eagerly", Count, "P2P.Sent.0.Messages"},
		{ofMessages, "  their data", Bytes, "P2P.Sent.0.Bytes"},
		{ofMessages, "messages sent by rendezvous", Count, "P2P.Sent.1.Messages"},
		{ofMessages, "  their data", Bytes, "P2P.Sent.1.Bytes"},
		{ofMessages, "  small, for want of room", Count, "P2P.FellBack"},
		{ofMessages, "came unexpectedly", Count, "P2P.Unexpected"},
		{ofMessages, "  their data", Bytes, "P2P.UnexpectedBytes"},
		{ofMessages, "  most at once", Peak, "P2P.MaxUnexpected"},
		{ofMessages, "receives posted, most at once", Peak, "P2P.MaxPosted"},
		{ofMessages, "ready sends without a receive", Count, "P2P.NotReady"},
		{ofMessages, "never received", Count, "NeverReceived"},
		{ofSpeculation, "RTRs that came", Count, "P2P.RTRsCame"},
		{ofSpeculation, "  were used", Count, "P2P.RTRsUsed"},
		{ofSpeculation, "  were dropped", Count, "P2P.RTRsDropped"},
		{ofSpeculation, "    an RTS had crossed them", Count, "P2P.Crossed"},
		{ofSpeculation, "  were mispredicted", Count, "P2P.Mispredicted"},
		{ofSpeculation, "early calls of progress", Count, "P2P.EarlyProgress"},
		{ofSpeculation, "speculation stopped", Count, "P2P.SpeculationStopped"},
		{ofSpeculation, "  resumed", Count, "P2P.SpeculationResumed"},
		{ofWindows, "puts", Count, "Window.Puts"},
		{ofWindows, "  their data", Bytes, "Window.PutBytes"},
		{ofWindows, "gets", Count, "Window.Gets"},
		{ofWindows, "  their data", Bytes, "Window.GetBytes"},
		{ofWindows, "accumulates", Count, "Window.Accumulates"},
		{ofWindows, "atomics of NICs", Count, "Window.Atomics"},
		{ofWindows, "locks that others waited for", Count, "Window.LocksWaited"},
	}
	for i, name := range transports {
		rows = append(rows, Row{ofPackets, "packets by " + name, Count, fmt.Sprint("Carrier.packets.", i)})
	}
	for i := range maxRails {
		rows = append(rows, Row{ofPackets, fmt.Sprintf("data by rail %d", i), Bytes, fmt.Sprint("Carrier.by_rail.", i)})
	}
	rows = append(rows,
		Row{ofPackets, "messages that shared a packet", Count, "Carrier.coalesced"},
		Row{ofPackets, "packets without header", Count, "Carrier.headerless"},
		Row{ofPackets, "packets with acknowledgements only", Count, "Carrier.ack_only"},
		Row{ofPackets, "packets retransmitted", Count, "Carrier.retransmitted"},
		Row{ofPackets, "duplicate packets received", Count, "Carrier.duplicates"},
		Row{ofPackets, "packets received out of order", Count, "Carrier.out_of_order"},
		Row{ofPackets, "messages queued for lack of room", Count, "Carrier.queued"},
		Row{ofPackets, "data written", Bytes, "Carrier.WrittenBytes"},
		Row{ofPackets, "data read", Bytes, "Carrier.ReadBytes"},
		Row{ofConnections, "connections, at most", Peak, "Carrier.max_connections"},
		Row{ofConnections, "  opened", Count, "Carrier.connections_opened"},
		Row{ofConnections, "  closed", Count, "Carrier.connections_closed"},
		Row{ofConnections, "  refused by peers", Count, "Carrier.connections_refused"},
		Row{ofConnections, "rings that peers write to", Peak, "Carrier.rings"},
		Row{ofConnections, "SRQ low watermark reached", Count, "Carrier.low_watermark"},
		Row{ofConnections, "rails lost", Count, "Carrier.rails_lost"},
		Row{ofRegistration, "registrations", Count, "Carrier.registrations.Misses"},
		Row{ofRegistration, "  cache hits", Count, "Carrier.registrations.Hits"},
		Row{ofRegistration, "  evictions", Count, "Carrier.registrations.Evictions"},
		Row{ofRegistration, "  bytes, at most", Bytes, "Carrier.registrations.MaxBytes"},
		Row{ofRegistration, "small buffers looked up", Count, "Carrier.reuse.Uses"},
		Row{ofRegistration, "  frequent: sent without a copy", Count, "Carrier.reuse.Frequent"},
		Row{ofRegistration, "packets gathered from them", Count, "Carrier.gathered"},
		Row{ofRegistration, "puts and gets from them", Count, "Carrier.zero_copy"},
	)
	for i, name := range memoryKinds {
		rows = append(rows, Row{ofMemory, "memory of " + name, Bytes, fmt.Sprint("Carrier.memory.max.", i)})
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
func Totals(all []Values) (totals []Total) {
	for _, row := range Rows() {
		t := Total{Row: row, Least: ^uint64(0)}
		for _, s := range all {
			v := s.Count(row.Path)
			t.Sum, t.Least, t.Most = t.Sum+v, min(t.Least, v), max(t.Most, v)
		}
		if t.Sum > 0 {
			totals = append(totals, t)
		}
	}
	return totals
}
