package ranks

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// jobView is the template's data for a job.
type jobView struct {
	Headline  string
	Good      bool
	Missing   string // ranks without statistics
	Tiles     []tile
	Sizes     *kit.Bars // messages by size
	Packets   *kit.Bars // by transport
	RTRs      *kit.Bars // ready-to-receive messages
	Reuse     *kit.Bars // of registrations and of small buffers
	Memory    *kit.Bars // by kind
	ByRank    template.HTML
	PerColumn int // ranks per column of ByRank
	Groups    []groupView
	Arrivals  []arrivalView
}

// arrivalView is the imbalance of arrivals at an operation.
type arrivalView struct {
	Op, Calls, Bytes, Average, AverageFactor, Worst, WorstFactor string
}

// tile is a main figure.
type tile struct{ Value, Name, Note string }

// groupView is a table of statistics.
type groupView struct {
	Name string
	Rows []rowView
}

type rowView struct {
	Name          string
	Part          bool // part of the row above
	Sum, Min, Max string
}

// newJobView returns the figures, charts and tables of a job's statistics, or only a headline and a
// note if no rank reported any. RTRs are ready-to-receive messages, Reuse is that of registered
// memory and small buffers, and PerColumn the number of ranks in each column of the chart ByRank.
func newJobView(j *Job) *jobView {
	v := &jobView{Good: j.Code == 0}
	outcome := "succeeded"
	if !v.Good {
		outcome = fmt.Sprintf("failed: exit code %d", j.Code)
	}
	v.Headline = fmt.Sprintf("%s on %s %s", j.Program, cli.Plural(j.Ranks, "rank"), outcome)
	all := reported(j.Stats) // statistics of the ranks
	if n := j.Ranks - len(all); n > 0 {
		v.Missing = fmt.Sprintf("%s of %d reported no statistics; the page shows those of the others.", cli.Plural(n, "rank"), j.Ranks)
	}
	if len(all) == 0 {
		return v
	}
	v.addTiles(all)
	v.Sizes, v.Packets, v.RTRs, v.Reuse, v.Memory = sizeBars(all), packetBars(all), rtrBars(all), reuseBars(all), memoryBars(all)
	v.ByRank, v.PerColumn = drawByRank(j.Stats)
	v.addTables(all)
	for i := range j.Arrivals {
		a := &j.Arrivals[i]
		v.Arrivals = append(v.Arrivals, arrivalView{
			a.Op, cli.Count(uint64(a.Calls), ","), cli.Bytes(uint64(a.Bytes)),
			cli.Duration(a.Average), showFactor(a.AverageFactor), cli.Duration(a.Worst), showFactor(a.WorstFactor),
		})
	}
	return v
}

// sum returns the sum over all ranks of the statistic at a path.
func sum(all []Values, path string) (n uint64) {
	for _, s := range all {
		n += s.Count(path)
	}
	return n
}

// addTiles adds the main figures: messages, connections, memory and, if there were any, the use of
// RTRs (ready-to-receive messages), registration cache hits, and low watermarks: how often an SRQ
// ran so low that new receives had to be posted at once.
func (v *jobView) addTiles(all []Values) {
	rendezvous := sum(all, rendezvousSends+"Messages")
	messages := sum(all, eagerSends+"Messages") + rendezvous
	var memory, largestMemory, connections uint64
	for _, s := range all {
		_, n := memoryOf(s)
		memory, largestMemory, connections = memory+n, max(largestMemory, n), max(connections, s.Count(maxConnections))
	}
	add := func(value, name, note string) { v.Tiles = append(v.Tiles, tile{value, name, note}) }
	add(cli.Count(messages, ","), "messages", cli.Bytes(sum(all, eagerSends+"Bytes")+sum(all, rendezvousSends+"Bytes")))
	add(cli.Percent(rendezvous, messages), "by rendezvous", "the others eagerly")
	add(cli.Percent(sum(all, unexpectedMessages), messages), "unexpected", "arrived before their receives")
	add(cli.Count(connections, ","), "connections", "maximum of a rank")
	add(cli.Bytes(memory/uint64(len(all))), "communication memory", "mean of a rank; maximum "+cli.Bytes(largestMemory))
	if received := sum(all, rtrsReceived); received > 0 {
		add(cli.Percent(sum(all, rtrsUsed), received), "of RTRs used", cli.Count(received, ",")+" received")
	}
	if hits, misses := sum(all, cacheHits), sum(all, cacheMisses); hits+misses > 0 {
		add(cli.Percent(hits, hits+misses), "registration cache hits", cli.Count(misses, ",")+" misses")
	}
	if n := sum(all, lowWatermarks); n > 0 {
		add(cli.Count(n, ","), "low watermarks", "of SRQs")
	}
}

// addTables adds a table for each group of statistics.
func (v *jobView) addTables(all []Values) {
	for _, t := range Totals(all) {
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Name != t.Group {
			v.Groups = append(v.Groups, groupView{Name: t.Group})
		}
		g := &v.Groups[len(v.Groups)-1]
		name := strings.TrimLeft(t.Name, " ")
		isPart := name != t.Name // an indented row is a part of the row above
		g.Rows = append(g.Rows, rowView{name, isPart, t.ShowSum(), t.Show(t.Min), t.Show(t.Max)})
	}
}

// sizeBars shows the number of eager and rendezvous messages by size, in powers of two, from the
// size of the smallest message to that of the largest.
func sizeBars(all []Values) *kit.Bars {
	b := &kit.Bars{Keys: []kit.Key{{Class: "k0", Name: "eager"}, {Class: "k1", Name: "rendezvous"}}}
	var eager, rendezvous [64]uint64 // messages by the number of significant bits of their size
	for i := range eager {
		eager[i] = sum(all, fmt.Sprint(eagerSends+"BySize.", i))
		rendezvous[i] = sum(all, fmt.Sprint(rendezvousSends+"BySize.", i))
	}
	last := len(eager) - 1
	for last >= 0 && eager[last]+rendezvous[last] == 0 {
		last--
	}
	for i := range last + 1 {
		if n := eager[i] + rendezvous[i]; n > 0 || len(b.Bars) > 0 {
			b.Add(sizeClass(i), cli.Count(n, ","), kit.Segment{Class: "k0", Value: float64(eager[i])}, kit.Segment{Class: "k1", Value: float64(rendezvous[i])})
		}
	}
	return b.Scaled()
}

// sizeClass names the range of message sizes whose binary form has significantBits bits: "2 – 3 B"
// for 2 bits, "from 1 KiB" for 11.
func sizeClass(significantBits int) string {
	if significantBits == 0 {
		return "empty"
	}
	from, to := uint64(1)<<(significantBits-1), uint64(1)<<significantBits-1
	if from < 1<<10 {
		if from == to {
			return "1 B"
		}
		return fmt.Sprintf("%d – %d B", from, to)
	}
	return "from " + strings.Replace(cli.Bytes(from), ".0 ", " ", 1)
}

// packetBars shows the number of packets by transport.
func packetBars(all []Values) *kit.Bars {
	b := &kit.Bars{}
	for i, name := range transports {
		if n := sum(all, fmt.Sprint(packetsSent, i)); n > 0 {
			b.Add(name, cli.Count(n, ","), kit.Segment{Class: "k2", Value: float64(n)})
		}
	}
	return b.Scaled()
}

// rtrBars shows how many RTRs (ready to receive: receivers send them when they predict a
// rendezvous message) were received, used, dropped, and sent in vain.
func rtrBars(all []Values) *kit.Bars {
	b := &kit.Bars{}
	for _, r := range []struct{ name, class, path string }{
		{"received", "k0", rtrsReceived},
		{"used", "k2", rtrsUsed},
		{"dropped", "k1", rtrsDropped},
		{"crossed by an RTS", "k1", rtrsCrossed},
		{"sent for eager messages", "k5", rtrsMispredicted},
	} {
		n := sum(all, r.path)
		b.Add(r.name, cli.Count(n, ","), kit.Segment{Class: r.class, Value: float64(n)})
	}
	return b.Scaled()
}

// reuseBars shows the hit rate of the registration cache, and the share of small buffers that
// were used frequently, and so sent without a copy.
func reuseBars(all []Values) *kit.Bars {
	b := &kit.Bars{Keys: []kit.Key{{Class: "k2", Name: "cache hits, sends without copy"}, {Class: "k1", Name: "cache misses, copied sends"}}}
	add := func(name string, hits, lookups uint64) {
		if lookups > 0 {
			b.Add(name, cli.Count(hits, ",")+" of "+cli.Count(lookups, ","), kit.Segment{Class: "k2", Value: float64(hits)}, kit.Segment{Class: "k1", Value: float64(lookups - hits)})
		}
	}
	hits := sum(all, cacheHits)
	add("registrations", hits, hits+sum(all, cacheMisses))
	add("small buffers", sum(all, buffersFrequent), sum(all, buffersUsed))
	return b.Scaled()
}

// memoryBars shows the mean memory of a rank by kind, with the minimum and the maximum over
// ranks if they differ. It omits kinds that no rank used.
func memoryBars(all []Values) *kit.Bars {
	b := &kit.Bars{}
	for k, name := range memoryKinds {
		total, least, most := uint64(0), uint64(math.MaxUint64), uint64(0)
		for _, s := range all {
			n := s.Count(fmt.Sprint(memoryBytes, k))
			total, least, most = total+n, min(least, n), max(most, n)
		}
		if total == 0 {
			continue
		}
		text := cli.Bytes(total / uint64(len(all)))
		if least != most {
			text += fmt.Sprintf(" (%s to %s)", cli.Bytes(least), cli.Bytes(most))
		}
		b.Add(name, text, kit.Segment{Class: kindClass(k), Value: float64(total) / float64(len(all))})
	}
	return b.Scaled()
}

// kindClass returns the CSS class of a kind of memory.
func kindClass(k int) string { return fmt.Sprintf("m%d", k) }
