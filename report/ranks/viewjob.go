package ranks

import (
	"fmt"
	"html/template"
	"math/bits"
	"strings"

	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// jobView is the template's data for a job.
type jobView struct {
	Headline string
	Good     bool
	Missing  string // ranks without statistics
	Tiles    []tile
	Sizes    *barsView // messages by size
	Ways     *barsView // packets by path
	RTRs     *barsView
	Found    *barsView // hits of the registration cache, and reused buffers
	Kinds    *barsView // memory
	ByRank   template.HTML
	Coarse   int // ranks per column
	Groups   []groupView
}

// tile is a main figure.
type tile struct{ Value, Name, Note string }

// groupView is a table of statistics.
type groupView struct {
	Name string
	Rows []rowView
}

type rowView struct {
	Name             string
	Part             bool // part of the row above
	Sum, Least, Most string
}

func newJobView(j *Job) *jobView {
	v := &jobView{Good: j.Code == 0}
	how := "ended well"
	if !v.Good {
		how = fmt.Sprintf("failed: exit code %d", j.Code)
	}
	v.Headline = fmt.Sprintf("%s on %s %s", j.Program, units.Plural(j.Ranks, "rank"), how)
	all := j.reported()
	if n := j.Ranks - len(all); n > 0 {
		v.Missing = fmt.Sprintf("%s of %d handed in no statistics: what follows is of the others.", units.Plural(n, "rank"), j.Ranks)
	}
	if len(all) == 0 {
		return v
	}
	sum := added(all)
	v.tiles(all, sum)
	v.Sizes, v.Ways, v.RTRs, v.Found = sizeBars(sum), wayBars(sum), rtrBars(sum), foundBars(sum)
	v.Kinds = kindBars(all)
	v.ByRank, v.Coarse = drawByRank(j.Stats)
	v.tables(all)
	return v
}

// added returns the sums that the charts need.
func added(all []*Stats) *Stats {
	t := new(Stats)
	for _, s := range all {
		for w := range s.P2P.Sent {
			from, to := &s.P2P.Sent[w], &t.P2P.Sent[w]
			to.Messages, to.Bytes = to.Messages+from.Messages, to.Bytes+from.Bytes
			for i, n := range from.BySize {
				to.BySize[i] += n
			}
		}
		for i, n := range s.Carrier.Packets {
			t.Carrier.Packets[i] += n
		}
		t.P2P.Unexpected += s.P2P.Unexpected
		t.P2P.RTRsCame += s.P2P.RTRsCame
		t.P2P.RTRsUsed += s.P2P.RTRsUsed
		t.P2P.RTRsDropped += s.P2P.RTRsDropped
		t.P2P.Crossed += s.P2P.Crossed
		t.P2P.Mispredicted += s.P2P.Mispredicted
		t.Carrier.LowWatermark += s.Carrier.LowWatermark
		t.Carrier.Registrations.Hits += s.Carrier.Registrations.Hits
		t.Carrier.Registrations.Misses += s.Carrier.Registrations.Misses
		t.Carrier.Reuse.Uses += s.Carrier.Reuse.Uses
		t.Carrier.Reuse.Frequent += s.Carrier.Reuse.Frequent
	}
	return t
}

func (v *jobView) tiles(all []*Stats, sum *Stats) {
	eager, large := &sum.P2P.Sent[p2p.Eager], &sum.P2P.Sent[p2p.Rendezvous]
	messages := eager.Messages + large.Messages
	memory, most, connections := 0, 0, 0
	for _, s := range all {
		n := 0
		for _, k := range s.Carrier.Memory.Max {
			n += k
		}
		memory, most, connections = memory+n, max(most, n), max(connections, s.Carrier.MaxConnections)
	}
	add := func(value, name, note string) { v.Tiles = append(v.Tiles, tile{value, name, note}) }
	add(units.Count(messages, ","), "messages", units.Bytes(eager.Bytes+large.Bytes))
	add(units.Percent(large.Messages, messages), "by rendezvous", "the rest eagerly")
	add(units.Percent(sum.P2P.Unexpected, messages), "unexpected", "came before their receives")
	add(units.Count(uint64(connections), ","), "connections", "of a rank, at most")
	add(units.Bytes(memory/len(all)), "communication memory", "a rank; at most "+units.Bytes(most))
	if sum.P2P.RTRsCame > 0 {
		add(units.Percent(sum.P2P.RTRsUsed, sum.P2P.RTRsCame), "of RTRs used", units.Count(sum.P2P.RTRsCame, ",")+" came")
	}
	if r := &sum.Carrier.Registrations; r.Hits+r.Misses > 0 {
		add(units.Percent(r.Hits, r.Hits+r.Misses), "registrations found", units.Count(r.Misses, ",")+" were made")
	}
	if sum.Carrier.LowWatermark > 0 {
		add(units.Count(sum.Carrier.LowWatermark, ","), "low watermarks", "of shared receives")
	}
}

func (v *jobView) tables(all []*Stats) {
	for _, t := range Totals(all) {
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Name != t.Group {
			v.Groups = append(v.Groups, groupView{Name: t.Group})
		}
		g := &v.Groups[len(v.Groups)-1]
		name := strings.TrimLeft(t.Name, " ")
		g.Rows = append(g.Rows, rowView{name, name != t.Name, t.Shown(), t.Show(t.Least), t.Show(t.Most)})
	}
}

// sizeBars shows messages by powers of two.
func sizeBars(sum *Stats) *barsView {
	b := &barsView{Keys: []key{{"k0", "eagerly"}, {"k1", "by rendezvous"}}}
	sent := &sum.P2P.Sent
	first, last := -1, -1
	for i := range sent[0].BySize {
		if sent[p2p.Eager].BySize[i]+sent[p2p.Rendezvous].BySize[i] > 0 {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	for i := first; i >= 0 && i <= last; i++ {
		e, r := sent[p2p.Eager].BySize[i], sent[p2p.Rendezvous].BySize[i]
		b.add(sizeClass(i), units.Count(e+r, ","), part{"k0", float64(e)}, part{"k1", float64(r)})
	}
	return b.scaled()
}

// sizeClass names the sizes with i bits.
func sizeClass(i int) string {
	if i == 0 {
		return "empty"
	}
	from, to := uint64(1)<<(i-1), uint64(1)<<i-1
	if bits.Len64(from) <= 10 {
		if from == to {
			return "1 B"
		}
		return fmt.Sprintf("%d – %d B", from, to)
	}
	return "from " + strings.Replace(units.Bytes(from), ".0 ", " ", 1)
}

func wayBars(sum *Stats) *barsView {
	b := &barsView{}
	for w, n := range sum.Carrier.Packets {
		if n > 0 {
			b.add(carrier.Transport(w).String(), units.Count(n, ","), part{"k2", float64(n)})
		}
	}
	return b.scaled()
}

func rtrBars(sum *Stats) *barsView {
	p := &sum.P2P
	if p.RTRsCame+p.Mispredicted == 0 {
		return nil
	}
	b := &barsView{}
	for _, r := range []struct {
		name, class string
		n           uint64
	}{
		{"came", "k0", p.RTRsCame},
		{"were used", "k2", p.RTRsUsed},
		{"were dropped", "k1", p.RTRsDropped},
		{"an RTS had crossed", "k1", p.Crossed},
		{"were for eager data", "k5", p.Mispredicted},
	} {
		b.add(r.name, units.Count(r.n, ","), part{r.class, float64(r.n)})
	}
	return b.scaled()
}

func foundBars(sum *Stats) *barsView {
	r, u := &sum.Carrier.Registrations, &sum.Carrier.Reuse
	b := &barsView{Keys: []key{{"k2", "found, or not copied"}, {"k1", "made, or copied"}}}
	if r.Hits+r.Misses > 0 {
		b.add("registrations", units.Count(r.Hits, ",")+" of "+units.Count(r.Hits+r.Misses, ","), part{"k2", float64(r.Hits)}, part{"k1", float64(r.Misses)})
	}
	if u.Uses > 0 {
		b.add("small buffers", units.Count(u.Frequent, ",")+" of "+units.Count(u.Uses, ","), part{"k2", float64(u.Frequent)}, part{"k1", float64(u.Uses - u.Frequent)})
	}
	return b.scaled()
}

// kindBars shows the average memory of a rank by kind.
func kindBars(all []*Stats) *barsView {
	b := &barsView{}
	for k := range (memory.Usage{}).Max {
		sum, least, most := 0, all[0].Carrier.Memory.Max[k], 0
		for _, s := range all {
			n := s.Carrier.Memory.Max[k]
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if sum == 0 {
			continue
		}
		text := units.Bytes(sum / len(all))
		if least != most {
			text += fmt.Sprintf(" (%s to %s)", units.Bytes(least), units.Bytes(most))
		}
		b.add(memory.Kind(k).String(), text, part{kindClass(k), float64(sum) / float64(len(all))})
	}
	return b.scaled()
}

// kindClass returns the CSS class of a kind of memory.
func kindClass(k int) string { return fmt.Sprintf("m%d", k) }
