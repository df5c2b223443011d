package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/lab/mpihost/join"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// statRow is a line of the table that --stats prints: a figure of each rank.
type statRow struct {
	name string
	kind statKind
	of   func(*join.Stats) uint64
}

// statKind is what a figure is.
type statKind uint8

const (
	statCount statKind = iota
	statBytes
	statPeak // which of several ranks do not add up
)

// statRows are what is worth knowing, in the order in which one asks.
func statRows() []statRow {
	rows := []statRow{
		{"messages sent eagerly", statCount, func(s *join.Stats) uint64 { return s.P2P.Sent[p2p.Eager].Messages }},
		{"  their data", statBytes, func(s *join.Stats) uint64 { return s.P2P.Sent[p2p.Eager].Bytes }},
		{"messages sent by rendezvous", statCount, func(s *join.Stats) uint64 { return s.P2P.Sent[p2p.Rendezvous].Messages }},
		{"  their data", statBytes, func(s *join.Stats) uint64 { return s.P2P.Sent[p2p.Rendezvous].Bytes }},
		{"  small, for want of room", statCount, func(s *join.Stats) uint64 { return s.P2P.FellBack }},
		{"came unexpectedly", statCount, func(s *join.Stats) uint64 { return s.P2P.Unexpected }},
		{"  most at once", statPeak, func(s *join.Stats) uint64 { return uint64(s.P2P.MaxUnexpected) }},
		{"never received", statCount, func(s *join.Stats) uint64 { return s.NeverReceived }},
		{"RTRs that came", statCount, func(s *join.Stats) uint64 { return s.P2P.RTRsCame }},
		{"  were used", statCount, func(s *join.Stats) uint64 { return s.P2P.RTRsUsed }},
		{"  were mispredicted", statCount, func(s *join.Stats) uint64 { return s.P2P.Mispredicted }},
		{"puts", statCount, func(s *join.Stats) uint64 { return s.Window.Puts }},
		{"gets", statCount, func(s *join.Stats) uint64 { return s.Window.Gets }},
		{"accumulates", statCount, func(s *join.Stats) uint64 { return s.Window.Accumulates }},
	}
	for w := range len(carrier.Stats{}.Packets) {
		rows = append(rows, statRow{"packets by " + carrier.Way(w).String(), statCount, func(s *join.Stats) uint64 { return s.Carrier.Packets[w] }})
	}
	rows = append(rows,
		statRow{"packets sent again", statCount, func(s *join.Stats) uint64 { return s.Carrier.Resent }},
		statRow{"waited for room", statCount, func(s *join.Stats) uint64 { return s.Carrier.Waited }},
		statRow{"data written", statBytes, func(s *join.Stats) uint64 { return s.Carrier.WrittenBytes }},
		statRow{"data read", statBytes, func(s *join.Stats) uint64 { return s.Carrier.ReadBytes }},
		statRow{"connections, at most", statPeak, func(s *join.Stats) uint64 { return uint64(s.Carrier.MaxConnections) }},
		statRow{"  given back", statCount, func(s *join.Stats) uint64 { return s.Carrier.GivenBack }},
		statRow{"  refused by peers", statCount, func(s *join.Stats) uint64 { return s.Carrier.Refused }},
		statRow{"rings", statCount, func(s *join.Stats) uint64 { return uint64(s.Carrier.Rings) }},
		statRow{"shared receives ran low", statCount, func(s *join.Stats) uint64 { return s.Carrier.LowWatermark }},
		statRow{"rails lost", statCount, func(s *join.Stats) uint64 { return uint64(s.Carrier.RailsLost) }},
		statRow{"registrations", statCount, func(s *join.Stats) uint64 { return s.Carrier.Registrations.Misses }},
		statRow{"  found again", statCount, func(s *join.Stats) uint64 { return s.Carrier.Registrations.Hits }},
		statRow{"  evicted", statCount, func(s *join.Stats) uint64 { return s.Carrier.Registrations.Evictions }},
		statRow{"small buffers in use", statCount, func(s *join.Stats) uint64 { return uint64(s.Carrier.Reuse.Buffers) }},
		statRow{"  used often", statCount, func(s *join.Stats) uint64 { return uint64(s.Carrier.Reuse.Often) }},
		statRow{"  messages not copied", statCount, func(s *join.Stats) uint64 { return s.Carrier.Gathered }},
		statRow{"  puts and gets not copied", statCount, func(s *join.Stats) uint64 { return s.Carrier.Direct }},
	)
	for m := range len(carrier.Bytes{}.Max) {
		rows = append(rows, statRow{"memory of " + carrier.Memory(m).String(), statBytes, func(s *join.Stats) uint64 { return uint64(s.Carrier.Memory.Max[m]) }})
	}
	return rows
}

// printRankStats prints what the ranks reported: of each figure the sum, the least and
// the most. Figures that are zero everywhere are left out.
func printRankStats(w io.Writer, reports []json.RawMessage) error {
	var all []join.Stats
	for rank, text := range reports {
		if text == nil {
			continue
		}
		var s join.Stats
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("statistics of rank %d: %w", rank, err)
		}
		all = append(all, s)
	}
	const line = "%-34s %12s %12s %12s\n"
	fmt.Fprintf(w, line, fmt.Sprintf("%d of %s", len(all), units.Plural(len(reports), "rank")), "all", "least", "most")
	for _, row := range statRows() {
		sum, least, most := uint64(0), ^uint64(0), uint64(0)
		for i := range all {
			v := row.of(&all[i])
			sum, least, most = sum+v, min(least, v), max(most, v)
		}
		if sum == 0 {
			continue
		}
		together := row.shown(sum)
		if row.kind == statPeak {
			together = ""
		}
		if _, err := fmt.Fprintf(w, line, row.name, together, row.shown(least), row.shown(most)); err != nil {
			return err
		}
	}
	return nil
}

func (r *statRow) shown(v uint64) string {
	if r.kind == statBytes {
		return units.Bytes(v)
	}
	return units.Count(v, ",")
}
