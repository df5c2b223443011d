package ranks

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/fabrictest/fabrictest/internal/cli"
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
		return cli.Bytes(v)
	}
	return cli.Count(v, ",")
}

// Paths of statistics that the page shows outside of the tables too, in the JSON of mpi.Stats.
// Lists are indexed by the runtime's constants, which this package does not link.
const (
	eagerSends         = "P2P.Sent.0." // of p2p.Eager: Messages, Bytes, BySize
	rendezvousSends    = "P2P.Sent.1."
	unexpectedMessages = "P2P.Unexpected"
	rtrsReceived       = "P2P.RTRsReceived"
	rtrsUsed           = "P2P.RTRsUsed"
	rtrsDropped        = "P2P.RTRsDropped"
	rtrsCrossed        = "P2P.RTRsCrossed"
	rtrsMispredicted   = "P2P.Mispredicted"
	packetsSent        = "Carrier.packets."    // by carrier.Transport
	railBytes          = "Carrier.by_rail."    // by rail
	memoryBytes        = "Carrier.memory.max." // by memory.Kind
	maxConnections     = "Carrier.max_connections"
	lowWatermarks      = "Carrier.low_watermark"
	cacheHits          = "Carrier.registrations.Hits"
	cacheMisses        = "Carrier.registrations.Misses"
	buffersUsed        = "Carrier.reuse.Uses"
	buffersFrequent    = "Carrier.reuse.Frequent"
)

// Headings of the tables.
const (
	groupMessages     = "Messages"
	groupSpeculation  = "Speculation"
	groupWindows      = "Windows"
	groupCollectives  = "Collective operations"
	groupPackets      = "Packets"
	groupConnections  = "Connections"
	groupRegistration = "Registration and buffer reuse"
	groupMemory       = "Communication memory"
)

// Rows returns the statistics of the tables: heading, name, kind, and path in the JSON of
// mpi.Stats.
func Rows() []Row {
	const maxRails = 4 // of a rank
	rows := []Row{     //nolint:prealloc // built once, and short
		{groupMessages, "eager messages sent", Count, eagerSends + "Messages"},
		{groupMessages, "  bytes", Bytes, eagerSends + "Bytes"},
		{groupMessages, "rendezvous messages sent", Count, rendezvousSends + "Messages"},
		{groupMessages, "  bytes", Bytes, rendezvousSends + "Bytes"},
		{groupMessages, "  small, for lack of credits", Count, "P2P.CreditFallbacks"},
		{groupMessages, "unexpected messages", Count, unexpectedMessages},
		{groupMessages, "  bytes", Bytes, "P2P.UnexpectedBytes"},
		{groupMessages, "  queued, maximum", Peak, "P2P.MaxUnexpected"},
		{groupMessages, "receives posted, maximum", Peak, "P2P.MaxPosted"},
		{groupMessages, "ready sends without a receive", Count, "P2P.NotReady"},
		{groupMessages, "messages never received", Count, "NeverReceived"},
		{groupSpeculation, "RTRs received", Count, rtrsReceived},
		{groupSpeculation, "  used", Count, rtrsUsed},
		{groupSpeculation, "  dropped", Count, rtrsDropped},
		{groupSpeculation, "    crossed by an RTS", Count, rtrsCrossed},
		{groupSpeculation, "RTRs sent for eager messages", Count, rtrsMispredicted},
		{groupSpeculation, "RTRs of advertised receives", Count, "P2P.Advertisements"},
		{groupSpeculation, "early progress calls", Count, "P2P.EarlyProgress"},
		{groupSpeculation, "speculation stopped", Count, "P2P.SpeculationStopped"},
		{groupSpeculation, "  resumed", Count, "P2P.SpeculationResumed"},
		{groupWindows, "puts", Count, "Window.Puts"},
		{groupWindows, "  bytes", Bytes, "Window.PutBytes"},
		{groupWindows, "gets", Count, "Window.Gets"},
		{groupWindows, "  bytes", Bytes, "Window.GetBytes"},
		{groupWindows, "accumulates", Count, "Window.Accumulates"},
		{groupWindows, "atomics executed by NICs", Count, "Window.Atomics"},
		{groupWindows, "locks that ranks waited for", Count, "Window.LocksWaited"},
		{groupCollectives, "operations through shared memory", Count, "Shared.Operations"},
		{groupCollectives, "  that waited for a region", Count, "Shared.Waits"},
		{groupCollectives, "operations that need more shared memory", Count, "Shared.Fallbacks"},
	}
	for i, name := range transports {
		rows = append(rows, Row{groupPackets, "packets by " + name, Count, fmt.Sprint(packetsSent, i)})
	}
	for i := range maxRails {
		rows = append(rows, Row{groupPackets, fmt.Sprintf("bytes on rail %d", i), Bytes, fmt.Sprint(railBytes, i)})
	}
	rows = append(rows,
		Row{groupPackets, "messages coalesced", Count, "Carrier.coalesced"},
		Row{groupPackets, "headerless packets", Count, "Carrier.headerless"},
		Row{groupPackets, "ACK-only packets", Count, "Carrier.ack_only"},
		Row{groupPackets, "packets retransmitted", Count, "Carrier.retransmitted"},
		Row{groupPackets, "requests for multicast packets", Count, "Carrier.multicast_requests"},
		Row{groupPackets, "multicast packets sent again to one rank", Count, "Carrier.multicast_resent"},
		Row{groupPackets, "duplicate packets received", Count, "Carrier.duplicates"},
		Row{groupPackets, "packets received out of order", Count, "Carrier.out_of_order"},
		Row{groupPackets, "messages queued for lack of credits", Count, "Carrier.queued"},
		Row{groupPackets, "bytes written by RDMA", Bytes, "Carrier.WrittenBytes"},
		Row{groupPackets, "bytes read by RDMA", Bytes, "Carrier.ReadBytes"},
		Row{groupConnections, "connections, maximum", Peak, maxConnections},
		Row{groupConnections, "  opened", Count, "Carrier.connections_opened"},
		Row{groupConnections, "  closed", Count, "Carrier.connections_closed"},
		Row{groupConnections, "  refused by peers", Count, "Carrier.connections_refused"},
		Row{groupConnections, "rings of peers", Peak, "Carrier.rings"},
		Row{groupConnections, "SRQ low watermark reached", Count, lowWatermarks},
		Row{groupConnections, "rails lost", Count, "Carrier.rails_lost"},
		Row{groupRegistration, "memory registrations", Count, cacheMisses},
		Row{groupRegistration, "  cache hits", Count, cacheHits},
		Row{groupRegistration, "  evictions", Count, "Carrier.registrations.Evictions"},
		Row{groupRegistration, "  bytes, maximum", Bytes, "Carrier.registrations.MaxBytes"},
		Row{groupRegistration, "small buffers looked up", Count, buffersUsed},
		Row{groupRegistration, "  frequent: sent without a copy", Count, buffersFrequent},
		Row{groupRegistration, "packets sent by gather", Count, "Carrier.gathered"},
		Row{groupRegistration, "zero-copy small puts and gets", Count, "Carrier.zero_copy"},
	)
	for i, name := range memoryKinds {
		rows = append(rows, Row{groupMemory, "memory of " + name, Bytes, fmt.Sprint(memoryBytes, i)})
	}
	return rows
}

// Total has the sum, minimum and maximum of a row over all ranks.
type Total struct {
	Row
	Sum, Min, Max uint64
}

// ShowSum formats the sum; empty for maxima, which are not summed.
func (t *Total) ShowSum() string {
	if t.Kind == Peak {
		return ""
	}
	return t.Show(t.Sum)
}

// Totals returns the sum, minimum and maximum over all ranks of each of Rows. all has the
// statistics of each rank. It omits rows that are zero for all ranks.
func Totals(all []Values) (totals []Total) {
	for _, row := range Rows() {
		t := Total{Row: row, Min: ^uint64(0)}
		for _, s := range all {
			v := s.Count(row.Path)
			t.Sum, t.Min, t.Max = t.Sum+v, min(t.Min, v), max(t.Max, v)
		}
		if t.Sum > 0 {
			totals = append(totals, t)
		}
	}
	return totals
}

// ParseStats reads the statistics that ranks reported; nil for a rank without a report.
func ParseStats(reports []json.RawMessage) ([]Values, error) {
	all := make([]Values, len(reports))
	for rank, text := range reports {
		if text == nil {
			continue
		}
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("statistics of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// WriteStats prints the sum, minimum and maximum of each statistic over the ranks, whose
// statistics may be nil. It omits statistics that are zero for all ranks.
func WriteStats(w io.Writer, all []Values) error {
	present := reported(all)
	const format = "%-34s %12s %12s %12s\n"
	fmt.Fprintf(w, format, fmt.Sprintf("%d of %s", len(present), cli.Plural(len(all), "rank")), "sum", "min", "max")
	for _, t := range Totals(present) {
		if _, err := fmt.Fprintf(w, format, t.Name, t.ShowSum(), t.Show(t.Min), t.Show(t.Max)); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable prints the mean bytes per rank of an experiment: a line for each workload and
// design, a column for each number of ranks.
func (e *Experiment) WriteTable(w io.Writer) {
	type line struct{ workload, design string }
	var lines []line
	var rankCounts []int
	cells := map[line]map[int]string{}
	for i := range e.Points {
		p := &e.Points[i]
		l := line{p.Workload, p.Design}
		if cells[l] == nil {
			cells[l] = map[int]string{}
			lines = append(lines, l)
		}
		if !slices.Contains(rankCounts, p.Ranks) {
			rankCounts = append(rankCounts, p.Ranks)
		}
		cells[l][p.Ranks] = cli.Bytes(uint64(p.Bytes.Mean))
	}
	slices.Sort(rankCounts)
	fmt.Fprintf(w, "%-26s", e.Name+": mean of a rank")
	for _, n := range rankCounts {
		fmt.Fprintf(w, " %9d", n)
	}
	fmt.Fprintln(w)
	previous := "" // workload
	for _, l := range lines {
		name := l.workload
		if name == previous {
			name = ""
		}
		previous = l.workload
		fmt.Fprintf(w, "  %-10s %-13s", name, l.design)
		for _, n := range rankCounts {
			fmt.Fprintf(w, " %9s", cells[l][n])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
